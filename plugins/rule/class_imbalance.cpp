// Classes that are seen far more often than others, or one that is mostly predicted wrong.
#include "classes.hpp"

namespace {

using namespace trainyard;
using namespace rules;

class ClassImbalance final : public Rule {
 public:
  struct Options {
    std::string labels = "^label$";
    std::string predictions = "^output_0$";
    std::int64_t samples = 500;
    double threshold_imbalance = 10.0;
    double threshold_misprediction = 0.7;
  };
  static void describe(Manifest<Options>& m) {
    m.name("class_imbalance")
        .version("1.0.0")
        .summary("A class is too rare among the labels, or mostly predicted wrong.");
    m.needs("predictions");
    m.option("labels", &Options::labels, "expression of the labels");
    m.option(
        "predictions", &Options::predictions,
        "expression of the predicted classes or their scores; where none is recorded, labels alone count");
    m.option("samples", &Options::samples, "labels that are gathered, then weighed, then gathered afresh")
        .min(1);
    m.option("threshold_imbalance", &Options::threshold_imbalance,
             "highest ratio of the counts of two classes that were seen")
        .min(1.0);
    m.option("threshold_misprediction", &Options::threshold_misprediction,
             "highest share of a class that is predicted wrong")
        .range(0.0, 1.0);
  }
  explicit ClassImbalance(const Options& options) : options_(options) {}

  std::vector<Watch> watches() const override {
    return {{options_.labels, true}, {options_.predictions, true}};
  }

  std::optional<Finding> evaluate(const Trial& trial, const StepRecord& now) override {
    const auto labels = trial.tensors(now, options_.labels);
    if (labels.empty()) return std::nullopt;
    const auto predictions = trial.tensors(now, options_.predictions);
    counts_.add(*labels[0], predictions.empty() ? nullptr : predictions[0]);
    if (counts_.total() < options_.samples) return std::nullopt;
    const ClassCounts counts = std::exchange(counts_, {});
    Offenders offenders;
    weigh_counts(counts.of_labels(), labels[0]->name, offenders);
    if (!predictions.empty()) weigh_errors(counts, predictions[0]->name, offenders);
    return offenders.finding({{"threshold_imbalance", options_.threshold_imbalance},
                              {"threshold_misprediction", options_.threshold_misprediction}});
  }

  void remember(StateWriter& state) const override { counts_.save(state); }
  void recall(const StateReader& state) override { counts_.load(state); }

 private:
  void weigh_counts(const std::map<std::int64_t, std::int64_t>& labels, const std::string& name,
                    Offenders& offenders) const {
    const auto fewer = [](const auto& a, const auto& b) { return a.second < b.second; };
    const auto [rarest, commonest] = std::minmax_element(labels.begin(), labels.end(), fewer);
    const double ratio = static_cast<double>(commonest->second) / static_cast<double>(rarest->second);
    if (!(ratio > options_.threshold_imbalance)) return;
    offenders.add(name, ratio / options_.threshold_imbalance, ratio,
                  "class " + std::to_string(rarest->first) + " was seen " + std::to_string(rarest->second) +
                      " times and class " + std::to_string(commonest->first) + " " +
                      std::to_string(commonest->second) + " times, expected a ratio of at most " +
                      five_digits(options_.threshold_imbalance));
  }
  void weigh_errors(const ClassCounts& counts, const std::string& name, Offenders& offenders) const {
    std::int64_t worst = 0;
    double share = -1.0;
    for (const auto& [label, count] : counts.of_labels()) {
      const double wrong =
          static_cast<double>(count - counts.count(label, label)) / static_cast<double>(count);
      if (wrong > share) share = wrong, worst = label;
    }
    if (!(share > options_.threshold_misprediction)) return;
    offenders.add(name, share / options_.threshold_misprediction, share,
                  five_digits(100.0 * share) + " % of class " + std::to_string(worst) +
                      " are predicted wrong, expected at most " +
                      five_digits(100.0 * options_.threshold_misprediction) + " %");
  }

  Options options_;
  ClassCounts counts_;
};

}  // namespace

TRAINYARD_PLUGIN(ClassImbalance)
