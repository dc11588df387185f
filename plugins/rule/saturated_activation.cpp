// A layer of tanh or sigmoid most of whose units are saturated: hardly any sample of the step has an input
// within the limits, where the slope is not lost.
#include "findings.hpp"
#include "units.hpp"

namespace {

using namespace trainyard;
using namespace rules;

class SaturatedActivation final : public Rule {
 public:
  struct Options {
    std::string tensors = "^(tanh|sigmoid)[0-9]*_input_0$";
    double tanh_min = -9.4999, tanh_max = 9.4999;
    double sigmoid_min = -23.0, sigmoid_max = 16.99999;
    double threshold_inactivity = 1.0;
    double threshold_layer = 50.0;
  };
  static void describe(Manifest<Options>& m) {
    m.name("saturated_activation").version("1.0.0").summary("Most units of a tanh or sigmoid are saturated.");
    m.needs("taps");
    m.option("tensors", &Options::tensors,
             "expression of the inputs of the activations; one with tanh in its name has the limits of tanh");
    m.option("tanh_min", &Options::tanh_min, "a tanh is saturated below this input");
    m.option("tanh_max", &Options::tanh_max, "a tanh is saturated above this input");
    m.option("sigmoid_min", &Options::sigmoid_min, "a sigmoid is saturated below this input");
    m.option("sigmoid_max", &Options::sigmoid_max, "a sigmoid is saturated above this input");
    m.option("threshold_inactivity", &Options::threshold_inactivity,
             "a unit is saturated that is within the limits for less than this share of the samples, percent")
        .range(0.0, 100.0);
    m.option("threshold_layer", &Options::threshold_layer, "saturated units that a layer may have, percent")
        .range(0.0, 100.0);
  }
  explicit SaturatedActivation(const Options& options) : options_(options) {}

  std::vector<Watch> watches() const override { return {{options_.tensors, true}}; }

  std::optional<Finding> evaluate(const Trial& trial, const StepRecord& now) override {
    Offenders offenders;
    for (const TensorRecord* input : trial.tensors(now, options_.tensors)) {
      const at::Tensor& values = values_of(*input);
      if (values.numel() == 0 || values.dim() == 0) continue;
      const bool tanh = input->name.find("tanh") != std::string::npos;
      const double low = tanh ? options_.tanh_min : options_.sigmoid_min;
      const double high = tanh ? options_.tanh_max : options_.sigmoid_max;
      // NaN is not saturated: what explodes is another rule's.
      const double saturated = idle_units_percent(values.lt(low).logical_or(values.gt(high)).logical_not(),
                                                  options_.threshold_inactivity);
      if (!(saturated > options_.threshold_layer)) continue;
      offenders.add(input->name, saturated, saturated,
                    five_digits(saturated) + " % of the units are within [" + five_digits(low) + ", " +
                        five_digits(high) + "] for less than " + five_digits(options_.threshold_inactivity) +
                        " % of the samples, expected at most " + five_digits(options_.threshold_layer) +
                        " % of the units");
    }
    return offenders.finding({{"threshold_inactivity", options_.threshold_inactivity},
                              {"threshold_layer", options_.threshold_layer}});
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(SaturatedActivation)
