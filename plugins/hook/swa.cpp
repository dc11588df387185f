// Stochastic weight averaging (Izmailov et al., "Averaging Weights Leads to Wider Optima and Better
// Generalization", UAI 2018, algorithm 1), for evaluations: the equal average of the weights at the end of
// every epoch (or other cadence) after `start`. As torch.optim.swa_utils.AveragedModel with use_buffers =
// true: floating-point buffers, the running statistics of normalisation among them, are averaged with the
// weights, so that no further pass over the data is needed. Use it with a schedule that stays high, such as
// constant or linear with a high end_factor.
#include "weight_average.hpp"

namespace {

using namespace trainyard;
using namespace hooks;

class Swa final : public WeightAverage {
 public:
  struct Options {
    Duration start{75, Duration::Unit::percent};
  };
  static void describe(Manifest<Options>& m) {
    m.name("swa").version("1.0.0").summary("Evaluates the equal average of the weights late in training.");
    m.needs("no sharded_rows").needs("no members").needs("no grows");
    m.option("start", &Options::start, "steps up to here are left out");
    m.hook<&Swa::find_weights>(Event::model_ready);
    m.hook<&Swa::fit_start>(Event::fit_start);
    m.hook<&Swa::after_step>(Event::after_step).every("1ep");
    m.hook<&Swa::swap_in>(Event::eval_start).writes(Region::model);
    m.hook<&Swa::swap_out>(Event::eval_end).writes(Region::model);
  }
  explicit Swa(const Options& options) : WeightAverage(/*with_buffers=*/true), options_(options) {}

  void fit_start(StepContext& context) {
    const auto steps = options_.start.steps(context.scale());
    if (!steps)
      throw ConfigError("hook swa: start = \"" + options_.start.text() +
                        "\" cannot be converted to steps of this run; use ep or ba");
    start_ = *steps;
  }

  void after_step(StepContext& context) {
    if (context.clock().step >= start_) update(1.0 / static_cast<double>(updates() + 1));
  }

 private:
  Options options_;
  std::int64_t start_ = 0;
};

}  // namespace

TRAINYARD_PLUGIN(Swa)
