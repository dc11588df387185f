// A confusion matrix, each label's row divided by its sum, that is not enough of a diagonal.
#include "classes.hpp"

namespace {

using namespace trainyard;
using namespace rules;

class Confusion final : public Rule {
 public:
  struct Options {
    std::string labels = "^label$";
    std::string predictions = "^output_0$";
    double min_diag = 0.9;
    double max_off_diag = 0.1;
    std::int64_t samples = 500;
  };
  static void describe(Manifest<Options>& m) {
    m.name("confusion").version("1.0.0").summary("Too many of a class are predicted as another.");
    m.needs("predictions");
    m.common_default("start", Duration{500.0, Duration::Unit::steps});  // an untrained model confuses all
    m.option("labels", &Options::labels, "expression of the labels");
    m.option("predictions", &Options::predictions, "expression of the predicted classes or their scores");
    m.option("min_diag", &Options::min_diag, "least share of a class that is predicted right")
        .range(0.0, 1.0);
    m.option("max_off_diag", &Options::max_off_diag, "highest share of a class predicted as one other")
        .range(0.0, 1.0);
    m.option("samples", &Options::samples, "labels that are gathered, then weighed, then gathered afresh")
        .min(1);
  }
  explicit Confusion(const Options& options) : options_(options) {}

  std::vector<Watch> watches() const override {
    return {{options_.labels, true}, {options_.predictions, true}};
  }

  std::optional<Finding> evaluate(const Trial& trial, const StepRecord& now) override {
    const auto labels = trial.tensors(now, options_.labels);
    const auto predictions = trial.tensors(now, options_.predictions);
    if (labels.empty() || predictions.empty()) return std::nullopt;
    counts_.add(*labels[0], predictions[0]);
    if (counts_.total() < options_.samples) return std::nullopt;
    const ClassCounts counts = std::exchange(counts_, {});
    Offenders offenders;
    const std::map<std::int64_t, std::int64_t> labelled = counts.of_labels();
    const auto share = [&](std::int64_t label, std::int64_t count) {
      return static_cast<double>(count) / static_cast<double>(labelled.at(label));
    };
    for (const auto& [label, count] : labelled) {
      const double right = share(label, counts.count(label, label));
      if (right < options_.min_diag)
        offenders.add(predictions[0]->name, options_.min_diag - right, right,
                      five_digits(100.0 * right) + " % of class " + std::to_string(label) +
                          " are predicted right, expected at least " +
                          five_digits(100.0 * options_.min_diag) + " %");
    }
    for (const auto& [pair, count] : counts.counts()) {
      const auto [label, predicted] = pair;
      const double wrong = share(label, count);
      if (label != predicted && wrong > options_.max_off_diag)
        offenders.add(predictions[0]->name, wrong - options_.max_off_diag, wrong,
                      five_digits(100.0 * wrong) + " % of class " + std::to_string(label) +
                          " are predicted as class " + std::to_string(predicted) + ", expected at most " +
                          five_digits(100.0 * options_.max_off_diag) + " %");
    }
    return offenders.finding({{"min_diag", options_.min_diag}, {"max_off_diag", options_.max_off_diag}});
  }

  void remember(StateWriter& state) const override { counts_.save(state); }
  void recall(const StateReader& state) override { counts_.load(state); }

 private:
  Options options_;
  ClassCounts counts_;
};

}  // namespace

TRAINYARD_PLUGIN(Confusion)
