// A layer of ReLUs most of which are dead: a unit that hardly any sample of the step makes active.
#include "findings.hpp"
#include "units.hpp"

namespace {

using namespace trainyard;
using namespace rules;

class DeadRelu final : public Rule {
 public:
  struct Options {
    std::string tensors = "^relu[0-9]*_output_0$";
    double threshold_inactivity = 1.0;
    double threshold_layer = 50.0;
  };
  static void describe(Manifest<Options>& m) {
    m.name("dead_relu").version("1.0.0").summary("Most ReLUs of a layer are dead.");
    m.needs("taps");
    m.option("tensors", &Options::tensors, "expression of the outputs of ReLUs");
    m.option("threshold_inactivity", &Options::threshold_inactivity,
             "a unit is dead that is above 0 for less than this share of the samples, percent")
        .range(0.0, 100.0);
    m.option("threshold_layer", &Options::threshold_layer, "dead units that a layer may have, percent")
        .range(0.0, 100.0);
  }
  explicit DeadRelu(const Options& options) : options_(options) {}

  std::vector<Watch> watches() const override { return {{options_.tensors, true}}; }

  std::optional<Finding> evaluate(const Trial& trial, const StepRecord& now) override {
    Offenders offenders;
    for (const TensorRecord* output : trial.tensors(now, options_.tensors)) {
      const at::Tensor& values = values_of(*output);
      if (values.numel() == 0 || values.dim() == 0) continue;
      // NaN is active: what explodes is not dead.
      const double dead = idle_units_percent(values.le(0).logical_not(), options_.threshold_inactivity);
      if (!(dead > options_.threshold_layer)) continue;
      offenders.add(output->name, dead, dead,
                    five_digits(dead) + " % of the units are above 0 for less than " +
                        five_digits(options_.threshold_inactivity) + " % of the samples, expected at most " +
                        five_digits(options_.threshold_layer) + " %");
    }
    return offenders.finding({{"threshold_inactivity", options_.threshold_inactivity},
                              {"threshold_layer", options_.threshold_layer}});
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(DeadRelu)
