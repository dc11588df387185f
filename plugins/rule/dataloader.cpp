// Too few or too many threads that load data, for the cores of the machine.
#include "samples.hpp"

namespace {

using namespace trainyard;
using namespace rules;

class Dataloader final : public Rule {
 public:
  struct Options {
    double min_threshold = 70.0;
    double max_threshold = 200.0;
  };
  static void describe(Manifest<Options>& m) {
    m.name("dataloader").version("1.0.0").summary("Too few or too many threads load data.");
    m.option("min_threshold", &Options::min_threshold, "least number of them, in percent of the cores")
        .min(0.0);
    m.option("max_threshold", &Options::max_threshold, "highest number of them, in percent of the cores")
        .min(0.0);
  }
  explicit Dataloader(const Options& options) : options_(options) {}

  std::vector<Watch> watches() const override {
    return {{"^profile/loader_workers$", true}, {"^system/cpu$", true}};
  }
  std::vector<Mode> modes() const override { return {Mode::global}; }

  std::optional<Finding> evaluate(const Trial&, const StepRecord& now) override {
    const std::optional<double> workers = sample(now, "profile/loader_workers");
    const std::vector<double> cores = samples(now, "system/cpu");
    if (!workers || *workers == 0.0 || cores.empty()) return std::nullopt;  // 0: the loop loads by itself
    const double share = 100.0 * *workers / static_cast<double>(cores.size());
    if (share >= options_.min_threshold && share <= options_.max_threshold) return std::nullopt;
    Finding finding;
    finding.tensors = {"profile/loader_workers"};
    finding.message = five_digits(*workers) + " threads load data on " + std::to_string(cores.size()) +
                      " cores, " + five_digits(share) + " %, expected " +
                      five_digits(options_.min_threshold) + " to " + five_digits(options_.max_threshold) +
                      " %; set data.workers";
    finding.evidence = {{"share", share},
                        {"min_threshold", options_.min_threshold},
                        {"max_threshold", options_.max_threshold}};
    return finding;
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(Dataloader)
