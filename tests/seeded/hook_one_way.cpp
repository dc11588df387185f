// Caught by state.round_trip: load was never written.
#include <trainyard/hook.hpp>
#include <trainyard/network.hpp>
#include <trainyard/state.hpp>

using namespace trainyard;

class OneWay final : public Hook {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("one_way").version("1.0.0").summary("A plugin with a mistake.");
    m.hook<&OneWay::called>(Event::after_backward).writes(Region::grads);
  }
  explicit OneWay(const Options&) {}

  void called(StepContext& context) {
    for (const NamedTensor& each : context.network().parameters())
      each.tensor.mutable_grad().mul_(1.0 / static_cast<double>(++count_));
  }
  void save(StateWriter& state) const override { state.scalar("count", count_); }
  void load(const StateReader&) override {}

 private:
  std::int64_t count_ = 0;
};
TRAINYARD_PLUGIN(OneWay)
