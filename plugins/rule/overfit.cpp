// A model that knows its training data better than others: the loss of an evaluation is higher than the mean
// loss of training since the one before.
#include "findings.hpp"
#include "memory.hpp"

namespace {

using namespace trainyard;
using namespace rules;

class Overfit final : public Rule {
 public:
  struct Options {
    std::string tensors = "losses";
    double ratio_threshold = 0.1;
    std::int64_t patience = 1;
    std::int64_t start_step = 0;
  };
  static void describe(Manifest<Options>& m) {
    m.name("overfit").version("1.0.0").summary("The loss of evaluations is too far above that of training.");
    needs_collection(m);
    m.option("tensors", &Options::tensors, "collection or expression of the losses");
    m.option("ratio_threshold", &Options::ratio_threshold,
             "highest (validation - training) / training of the losses")
        .min(0.0);
    m.option("patience", &Options::patience, "evaluations in a row above it that are one too many").min(1);
    m.option("start_step", &Options::start_step, "step of training from which on evaluations count").min(0);
  }
  explicit Overfit(const Options& options) : options_(options) {}

  std::vector<Watch> watches() const override { return {{options_.tensors}}; }
  std::vector<Mode> modes() const override { return {Mode::train, Mode::eval}; }

  std::optional<Finding> evaluate(const Trial& trial, const StepRecord& now) override {
    const std::vector<const TensorRecord*> losses = trial.tensors(now, options_.tensors);
    if (now.mode == Mode::train) {
      train_step_ = now.mode_step;
      if (std::exchange(evaluated_, false)) {
        sums_.clear();
        counts_.clear();
      }
      for (const TensorRecord* loss : losses) {
        sums_[loss->name] += loss->scalar();
        counts_[loss->name] += 1;
      }
      return std::nullopt;
    }
    evaluated_ = true;
    Offenders offenders;
    for (const TensorRecord* loss : losses) weigh(*loss, offenders);
    return offenders.finding({{"ratio_threshold", options_.ratio_threshold},
                              {"patience", static_cast<double>(options_.patience)}});
  }

  void remember(StateWriter& state) const override {
    state.scalar("train_step", train_step_);
    rules::remember(state, "sums", sums_);
    rules::remember(state, "counts", counts_);
    state.scalar("evaluated", evaluated_);
    rules::remember(state, "above", above_);
  }
  void recall(const StateReader& state) override {
    train_step_ = state.integer("train_step");
    sums_ = recall_scalars<double>(state, "sums");
    counts_ = recall_scalars<std::int64_t>(state, "counts");
    evaluated_ = state.boolean("evaluated");
    above_ = recall_scalars<std::int64_t>(state, "above");
  }

 private:
  void weigh(const TensorRecord& loss, Offenders& offenders) {
    const auto count = counts_.find(loss.name);
    if (count == counts_.end() || train_step_ < options_.start_step) return;
    const double training = sums_[loss.name] / static_cast<double>(count->second);
    const double validation = loss.scalar();
    const double ratio = (validation - training) / training;
    std::int64_t& above = above_[loss.name];
    above = ratio > options_.ratio_threshold ? above + 1 : 0;
    if (above < options_.patience) return;
    offenders.add(loss.name, ratio, ratio,
                  "it is " + five_digits(validation) + " in evaluation and " + five_digits(training) +
                      " in training, " + five_digits(100.0 * ratio) + " % above, expected at most " +
                      five_digits(100.0 * options_.ratio_threshold) + " %");
  }

  Options options_;
  std::int64_t train_step_ = 0;
  bool evaluated_ = false;         ///< since the last loss of training: the next one begins a new sum
  ByTensor<double> sums_;          ///< of the losses of training
  ByTensor<std::int64_t> counts_;  ///< of their records
  ByTensor<std::int64_t> above_;   ///< evaluations in a row
};

}  // namespace

TRAINYARD_PLUGIN(Overfit)
