// Hands on the network as it is: a place in the list for a transform that a swap brings later, or for one that goes.
#include <memory>
#include <utility>

#include <trainyard/transform.hpp>

namespace {

using namespace trainyard;

class None final : public Transform {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("none").version("1.0.0").summary(
        "Changes nothing: keeps a place for a transform that a swap brings, or takes the place of one.");
  }
  explicit None(const Options&) {}

  std::unique_ptr<Network> apply(std::unique_ptr<Network> network, const ModelContext&) const override {
    return network;
  }
};

}  // namespace

TRAINYARD_PLUGIN(None)
