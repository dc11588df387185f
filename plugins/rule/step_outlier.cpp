// Steps that take far longer than others. One among n is never more than (n - 1) / sqrt(n) deviations above
// the mean (by the unbiased variance): with fewer than 11 steps none is above three.
#include <numeric>

#include "memory.hpp"
#include "samples.hpp"

namespace {

using namespace trainyard;
using namespace rules;

class StepOutlier final : public Rule {
 public:
  struct Options {
    double stddev = 3.0;
    std::int64_t n_outliers = 10;
    std::int64_t steps = 100;
    std::int64_t window = 10000;
  };
  static void describe(Manifest<Options>& m) {
    m.name("step_outlier").version("1.0.0").summary("Some steps take far longer than the others.");
    m.option("stddev", &Options::stddev, "an outlier is so many standard deviations above the mean")
        .above(0.0);
    m.option("n_outliers", &Options::n_outliers, "outliers that are let pass").min(0);
    m.option("steps", &Options::steps, "it looks when there are more steps than this").min(0);
    m.option("window", &Options::window, "newest steps that it knows").min(1);
  }
  explicit StepOutlier(const Options& options) : options_(options) {}

  std::vector<Watch> watches() const override { return {{"^profile/step_seconds$", true}}; }
  std::vector<Mode> modes() const override { return {Mode::global}; }

  std::optional<Finding> evaluate(const Trial&, const StepRecord& now) override {
    for (const double seconds : samples(now, "profile/step_seconds")) {
      append(seconds_, seconds, options_.window);
      ++steps_;
    }
    if (steps_ <= options_.steps) return std::nullopt;
    const auto count = static_cast<double>(seconds_.size());
    const double mean = std::accumulate(seconds_.begin(), seconds_.end(), 0.0) / count;
    double squares = 0.0;
    for (const double each : seconds_) squares += (each - mean) * (each - mean);
    const double limit = mean + options_.stddev * std::sqrt(squares / (count - 1.0));
    const auto outliers =
        std::count_if(seconds_.begin(), seconds_.end(), [&](double each) { return each > limit; });
    if (outliers <= options_.n_outliers) return std::nullopt;
    Finding finding;
    finding.tensors = {"profile/step_seconds"};
    finding.message = std::to_string(outliers) + " of " + std::to_string(seconds_.size()) +
                      " steps took longer than " + five_digits(limit) + " s, the mean of " +
                      five_digits(mean) + " s and " + five_digits(options_.stddev) +
                      " standard deviations; expected at most " + std::to_string(options_.n_outliers);
    finding.evidence = {{"outliers", static_cast<double>(outliers)},
                        {"limit_seconds", limit},
                        {"mean_seconds", mean},
                        {"longest_seconds", *std::max_element(seconds_.begin(), seconds_.end())},
                        {"n_outliers", static_cast<double>(options_.n_outliers)}};
    return finding;
  }

  void remember(StateWriter& state) const override {
    state.scalar("steps", steps_);
    rules::remember(state, "seconds", seconds_);
  }
  void recall(const StateReader& state) override {
    steps_ = state.integer("steps");
    seconds_ = recall_numbers(state.tensor("seconds"));
  }

 private:
  Options options_;
  std::int64_t steps_ = 0;
  std::deque<double> seconds_;
};

}  // namespace

TRAINYARD_PLUGIN(StepOutlier)
