// Exponential moving average of the weights (Polyak and Juditsky, 1992; as used by Szegedy et al., CVPR 2016,
// section 8), for evaluations: average <- d * average + (1 - d) * weights after each step, from the weights
// after the first one. With warmup d = min(decay, (1 + t) / (10 + t)), t the updates so far, so that the
// first weights fade fast.
#include <algorithm>

#include "weight_average.hpp"

namespace {

using namespace trainyard;
using namespace hooks;

class Ema final : public WeightAverage {
 public:
  struct Options {
    double decay = 0.999;
    bool warmup = true;
    std::string buffers = "copy";
  };
  static void describe(Manifest<Options>& m) {
    m.name("ema").version("1.0.0").summary("Evaluates an exponential moving average of the weights.");
    m.needs("no sharded_rows").needs("no members").needs("no grows");
    m.option("decay", &Options::decay, "share of the average that stays at an update").min(0.0).below(1.0);
    m.option("warmup", &Options::warmup,
             "lower the decay to (1 + t) / (10 + t) where that is less, t updates so far");
    m.option("buffers", &Options::buffers,
             "running statistics: evaluated as they are (copy), or averaged like the weights (average)")
        .one_of({"copy", "average"});
    m.hook<&Ema::find_weights>(Event::model_ready);
    m.hook<&Ema::after_step>(Event::after_step).every("1ba");
    m.hook<&Ema::swap_in>(Event::eval_start).writes(Region::model);
    m.hook<&Ema::swap_out>(Event::eval_end).writes(Region::model);
  }
  explicit Ema(const Options& options) : WeightAverage(options.buffers == "average"), options_(options) {}

  void after_step(StepContext&) {
    const double t = static_cast<double>(updates());
    const double decay = options_.warmup ? std::min(options_.decay, (1.0 + t) / (10.0 + t)) : options_.decay;
    update(1.0 - decay);
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Ema)
