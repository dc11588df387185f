// Writes, as it declares: the weights at an event, and a state of its own at the beginning of every batch.
#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <trainyard/hook.hpp>
#include <trainyard/network.hpp>
#include <trainyard/state.hpp>

namespace {

using namespace trainyard;

class Writer final : public Hook {
 public:
  struct Options {
    std::string at = "never";
  };
  static constexpr Event events[] = {Event::before_step, Event::after_step, Event::eval_start,
                                     Event::eval_end};
  static void describe(Manifest<Options>& m) {
    m.name("writer").version("1.0.0").summary("Writes the weights, and a large state of its own.");
    std::vector<std::string> names = {"never"};
    for (const Event event : events) {
      names.emplace_back(name(event));
      m.hook<&Writer::called>(event).writes(Region::model);
    }
    m.hook<&Writer::batch_start>(Event::batch_start);
    m.option("at", &Options::at, "event at which it writes the weights").one_of(names);
  }
  explicit Writer(const Options& options) : options_(options), own_(at::zeros({1 << 16})) {}

  void called(StepContext& context) {
    if (name(context.event()) != options_.at) return;
    const at::NoGradGuard no_grad;
    for (const NamedTensor& each : context.network().parameters()) at::Tensor(each.tensor).mul_(1.001);
  }
  void batch_start(StepContext&) { own_.add_(1.0); }

  void save(StateWriter& state) const override { state.tensor("own", own_); }
  void load(const StateReader& state) override { own_ = state.tensor("own"); }

 private:
  Options options_;
  at::Tensor own_;
};

}  // namespace

TRAINYARD_PLUGIN(Writer)
