// A loss that no longer falls: of training, or of evaluations.
#include "findings.hpp"
#include "memory.hpp"

namespace {

using namespace trainyard;
using namespace rules;

class Overtraining final : public Rule {
 public:
  struct Options {
    std::string tensors = "losses";
    std::int64_t patience_train = 5;
    std::int64_t patience_validation = 10;
    double delta = 0.01;
  };
  static void describe(Manifest<Options>& m) {
    m.name("overtraining").version("1.0.0").summary("The loss no longer improves.");
    needs_collection(m);
    m.option("tensors", &Options::tensors, "collection or expression of the losses");
    m.option("patience_train", &Options::patience_train,
             "looks in a row without a better loss of training that are one too many")
        .min(1);
    m.option("patience_validation", &Options::patience_validation, "the same of evaluations").min(1);
    m.option("delta", &Options::delta, "least fall below the best loss that counts").min(0.0);
  }
  explicit Overtraining(const Options& options) : options_(options) {}

  std::vector<Watch> watches() const override { return {{options_.tensors}}; }
  std::vector<Mode> modes() const override { return {Mode::train, Mode::eval}; }

  std::optional<Finding> evaluate(const Trial& trial, const StepRecord& now) override {
    const bool training = now.mode == Mode::train;
    const std::int64_t patience = training ? options_.patience_train : options_.patience_validation;
    Offenders offenders;
    for (const TensorRecord* tensor : trial.tensors(now, options_.tensors)) {
      const std::string series = (training ? "train/" : "eval/") + tensor->name;
      const double loss = tensor->scalar();
      const auto [best, first] = best_.try_emplace(series, loss);
      if (first || loss < best->second - options_.delta ||
          (!std::isfinite(best->second) && std::isfinite(loss))) {
        best->second = loss;
        waited_[series] = 0;
        continue;
      }
      const std::int64_t waited = ++waited_[series];
      if (waited < patience) continue;
      offenders.add(tensor->name, loss - best->second, loss,
                    std::string("it is ") + five_digits(loss) +
                        (training ? " in training" : " in evaluation") + " and has not improved on " +
                        five_digits(best->second) + " by " + five_digits(options_.delta) + " for " +
                        std::to_string(waited) + " looks, expected to within " + std::to_string(patience));
    }
    return offenders.finding({{"patience", static_cast<double>(patience)}, {"delta", options_.delta}});
  }

  void remember(StateWriter& state) const override {
    rules::remember(state, "best", best_);
    rules::remember(state, "waited", waited_);
  }
  void recall(const StateReader& state) override {
    best_ = recall_scalars<double>(state, "best");
    waited_ = recall_scalars<std::int64_t>(state, "waited");
  }

 private:
  Options options_;
  ByTensor<double> best_;          ///< by mode and name
  ByTensor<std::int64_t> waited_;  ///< looks since the best loss
};

}  // namespace

TRAINYARD_PLUGIN(Overtraining)
