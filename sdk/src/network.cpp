#include <trainyard/error.hpp>
#include <trainyard/network.hpp>

namespace trainyard {

void Network::set_dropout(const DropoutPlan* plan, std::uint64_t) {
  if (plan != nullptr)
    throw PluginError("the network announces places for dropout but does not override Network::set_dropout");
}

void Network::adopt(const std::vector<NamedTensor>&) {
  throw ConfigError("this kind of network cannot take the place of another in a running training");
}

bool Network::add_tap(const void*, NetworkTap) {
  return false;
}

std::unique_ptr<Network> Network::twin() const {
  throw PluginError("the model has no graph, so that its network cannot have a twin");
}

}  // namespace trainyard
