// A run whose first step is long in coming.
#include "samples.hpp"

namespace {

using namespace trainyard;
using namespace rules;

class MaxInitializationTime final : public Rule {
 public:
  struct Options {
    double threshold = 20.0;
  };
  static void describe(Manifest<Options>& m) {
    m.name("max_initialization_time").version("1.0.0").summary("The first step is too long in coming.");
    m.option("threshold", &Options::threshold, "longest time to the first step, in minutes").above(0.0);
  }
  explicit MaxInitializationTime(const Options& options) : options_(options) {}

  /// The CPU's are there from the beginning on.
  std::vector<Watch> watches() const override { return {{"^(profile/initialization|system/cpu)$", true}}; }
  std::vector<Mode> modes() const override { return {Mode::global}; }

  std::optional<Finding> evaluate(const Trial&, const StepRecord& now) override {
    if (begun_) return std::nullopt;
    const std::optional<double> initialization = sample(now, "profile/initialization");
    begun_ = initialization.value_or(0.0) > 0.0;  // 0 until then
    const double minutes = (begun_ ? *initialization : now.seconds) / 60.0;
    if (!(minutes > options_.threshold)) return std::nullopt;
    Finding finding;
    finding.tensors = {"profile/initialization"};
    finding.message = (begun_ ? "the first step came after " : "there is no first step after ") +
                      five_digits(minutes) + " minutes, expected one within " +
                      five_digits(options_.threshold);
    finding.evidence = {{"minutes", minutes}, {"threshold", options_.threshold}};
    return finding;
  }

  void remember(StateWriter& state) const override { state.scalar("begun", begun_); }
  void recall(const StateReader& state) override { begun_ = state.boolean("begun"); }

 private:
  Options options_;
  bool begun_ = false;
};

}  // namespace

TRAINYARD_PLUGIN(MaxInitializationTime)
