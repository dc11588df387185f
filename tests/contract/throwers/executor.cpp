#include <trainyard/helpers/eager.hpp>

#include "thrower.hpp"

class ExecutorThrower final : public trainyard::Eager {
 public:
  using Options = ::Options;
  static void describe(trainyard::Manifest<Options>& m) {
    describe_thrower(m, {"open"}, {"step", "evaluate", "settle"});
    m.fires(trainyard::micro_events);
    for (const char* feature : {"grads", "hyper", "batch", "outputs", "model"}) m.provides(feature);
  }
  explicit ExecutorThrower(const Options& options) : options_(options) {}

  void open(trainyard::Workbench&) override { options_.at("open"); }
  void step(trainyard::Workbench& bench, trainyard::StepWork& work) override {
    options_.at("step");
    Eager::step(bench, work);
  }
  trainyard::Graded evaluate(trainyard::Workbench& bench, const trainyard::Batch& batch,
                             const trainyard::ForwardContext& pass) override {
    options_.at("evaluate");
    return Eager::evaluate(bench, batch, pass);
  }
  void settle(trainyard::Workbench&, Pause) override { options_.at("settle"); }

 private:
  Options options_;
};
TRAINYARD_PLUGIN(ExecutorThrower)
