// Caught by determinism.again: parameters are visited in the order of their addresses.
#include <map>

#include <trainyard/hook.hpp>
#include <trainyard/network.hpp>

using namespace trainyard;

class ByAddress final : public Hook {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("by_address").version("1.0.0").summary("A plugin with a mistake.");
    m.hook<&ByAddress::called>(Event::after_backward).writes(Region::grads);
  }
  explicit ByAddress(const Options&) {}

  void called(StepContext& context) {
    std::map<const void*, at::Tensor> all;
    for (const NamedTensor& each : context.network().parameters())
      all[each.tensor.unsafeGetTensorImpl()] = each.tensor;
    double factor = 1.0;
    for (auto& [address, tensor] : all) tensor.mutable_grad().mul_(factor *= 0.9);
  }
};
TRAINYARD_PLUGIN(ByAddress)
