// Weights that were initialised badly, seen in the first steps (`end`): variances of the inputs of ReLUs that
// differ from layer to layer, gradients without width, or a loss that does not fall.
#include "findings.hpp"
#include "memory.hpp"
#include "quantiles.hpp"

namespace {

using namespace trainyard;
using namespace rules;

class PoorWeightInitialization final : public Rule {
 public:
  struct Options {
    std::string activation_inputs = "^relu[0-9]*_input_0$";
    std::string gradients = "gradients";
    std::string losses = "losses";
    double threshold = 10.0;
    double distribution_range = 0.001;
    std::int64_t patience = 5;
  };
  static void describe(Manifest<Options>& m) {
    m.name("poor_weight_initialization")
        .version("1.0.0")
        .summary("Variances, gradients or the loss of the first steps tell of a bad initialisation.");
    m.needs("taps").needs("grads where gradients = gradients").needs("losses where losses = losses");
    m.common_default("every", Duration{1.0, Duration::Unit::steps});
    m.common_default("end", Duration{10.0, Duration::Unit::steps});
    m.option("activation_inputs", &Options::activation_inputs, "expression of the inputs of the activations");
    m.option("gradients", &Options::gradients, "collection or expression of the gradients");
    m.option("losses", &Options::losses, "collection or expression of the losses");
    m.option("threshold", &Options::threshold, "highest ratio of the variances of two activation inputs")
        .min(1.0);
    m.option("distribution_range", &Options::distribution_range,
             "least width of a gradient, from its percentile 5 to its percentile 95")
        .min(0.0);
    m.option("patience", &Options::patience, "steps in a row without a lower loss that are one too many")
        .min(1);
  }
  explicit PoorWeightInitialization(const Options& options) : options_(options) {}

  std::vector<Watch> watches() const override {
    return {{options_.activation_inputs}, {options_.gradients, true}, {options_.losses}};
  }

  std::optional<Finding> evaluate(const Trial& trial, const StepRecord& now) override {
    Offenders offenders;
    weigh_variances(trial.tensors(now, options_.activation_inputs), offenders);
    for (const TensorRecord* gradient : trial.tensors(now, options_.gradients))
      weigh_width(*gradient, offenders);
    for (const TensorRecord* loss : trial.tensors(now, options_.losses)) weigh_loss(*loss, offenders);
    return offenders.finding({{"threshold", options_.threshold},
                              {"distribution_range", options_.distribution_range},
                              {"patience", static_cast<double>(options_.patience)}});
  }

  void remember(StateWriter& state) const override {
    rules::remember(state, "lowest", lowest_);
    rules::remember(state, "waited", waited_);
  }
  void recall(const StateReader& state) override {
    lowest_ = recall_scalars<double>(state, "lowest");
    waited_ = recall_scalars<std::int64_t>(state, "waited");
  }

 private:
  void weigh_variances(const std::vector<const TensorRecord*>& inputs, Offenders& offenders) const {
    const TensorRecord *widest = nullptr, *narrowest = nullptr;
    double most = 0.0, least = 0.0;
    for (const TensorRecord* input : inputs) {
      const double variance = input->numbers().variance();
      if (std::isnan(variance)) continue;
      if (widest == nullptr || variance > most) widest = input, most = variance;
      if (narrowest == nullptr || variance < least) narrowest = input, least = variance;
    }
    if (widest == nullptr || !(most > options_.threshold * least)) return;
    const double excess = most / least / options_.threshold;
    const std::string expected = ", expected at most " + five_digits(options_.threshold) + " times as much";
    offenders.add(widest->name, excess, most,
                  "its variance is " + five_digits(most) + ", that of " + narrowest->name + " " +
                      five_digits(least) + expected);
    offenders.add(narrowest->name, excess, least,
                  "its variance is " + five_digits(least) + ", that of " + widest->name + " " +
                      five_digits(most) + expected);
  }

  void weigh_width(const TensorRecord& gradient, Offenders& offenders) const {
    std::vector<double> sorted = sorted_numbers(values_of(gradient));
    if (sorted.size() < 2) return;  // no width, or NaN among them
    const double width = quantile(sorted, 0.95) - quantile(sorted, 0.05);
    if (!(width < options_.distribution_range)) return;
    offenders.add(gradient.name, options_.distribution_range / width, width,
                  "percentiles 5 and 95 are " + five_digits(width) + " apart, expected at least " +
                      five_digits(options_.distribution_range));
  }

  void weigh_loss(const TensorRecord& record, Offenders& offenders) {
    const double loss = record.scalar();
    const auto [lowest, first] = lowest_.try_emplace(record.name, loss);
    if (first || loss < lowest->second) {
      lowest->second = loss;
      waited_[record.name] = 0;
      return;
    }
    const std::int64_t waited = ++waited_[record.name];
    if (waited < options_.patience) return;
    offenders.add(record.name, 1.0, loss,
                  "it is " + five_digits(loss) + " and was no lower than " + five_digits(lowest->second) +
                      " for " + std::to_string(waited) + " steps, expected a fall within " +
                      std::to_string(options_.patience));
  }

  Options options_;
  ByTensor<double> lowest_;
  ByTensor<std::int64_t> waited_;  ///< steps since the lowest loss
};

}  // namespace

TRAINYARD_PLUGIN(PoorWeightInitialization)
