// A training that hangs: nothing was recorded for a long time. The card's `stop` is `action = "stop"`.
#include "findings.hpp"

namespace {

using namespace trainyard;
using namespace rules;

class StalledTraining final : public Rule {
 public:
  struct Options {
    double threshold = 1800.0;
    std::string tensors = "losses";
  };
  static void describe(Manifest<Options>& m) {
    m.name("stalled_training").version("1.0.0").summary("Nothing is recorded for a long time.");
    needs_collection(m);
    m.common_default("every", Duration{1.0, Duration::Unit::steps});
    m.option("threshold", &Options::threshold, "longest time between two records, in seconds").above(0.0);
    m.option("tensors", &Options::tensors, "collection or expression of what is recorded for it at least");
  }
  explicit StalledTraining(const Options& options) : options_(options) {}

  std::vector<Watch> watches() const override { return {{options_.tensors}}; }

  std::optional<Finding> evaluate(const Trial&, const StepRecord&) override { return std::nullopt; }

  std::optional<Finding> waited(double seconds) override {
    if (seconds < options_.threshold) return std::nullopt;
    Finding finding;
    finding.message = "nothing was recorded for " + five_digits(seconds) + " s, expected something within " +
                      five_digits(options_.threshold) + " s";
    finding.evidence = {{"seconds", seconds}, {"threshold", options_.threshold}};
    return finding;
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(StalledTraining)
