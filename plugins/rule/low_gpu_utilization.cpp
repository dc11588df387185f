// A GPU that is used little, or by fits and starts.
#include "quantiles.hpp"
#include "samples.hpp"

namespace {

using namespace trainyard;
using namespace rules;

class LowGpuUtilization final : public Rule {
 public:
  struct Options {
    double threshold_p95 = 70.0;
    double threshold_p5 = 10.0;
    std::int64_t window = 500;
    std::int64_t patience = 1000;
  };
  static void describe(Manifest<Options>& m) {
    m.name("low_gpu_utilization").version("1.0.0").summary("A GPU is used too little, or unsteadily.");
    m.option("threshold_p95", &Options::threshold_p95, "least percentile 95 of the use of a GPU, percent")
        .range(0.0, 100.0);
    m.option("threshold_p5", &Options::threshold_p5, "least percentile 5, percent").range(0.0, 100.0);
    m.option("window", &Options::window, "newest samples that percentiles are of").min(1);
    m.option("patience", &Options::patience, "samples before it looks for the first time").min(1);
  }
  explicit LowGpuUtilization(const Options& options) : options_(options) {}

  std::vector<Watch> watches() const override { return {{"^system/gpu$", true}}; }
  std::vector<Mode> modes() const override { return {Mode::global}; }

  std::optional<Finding> evaluate(const Trial&, const StepRecord& now) override {
    const std::vector<double> gpus = samples(now, "system/gpu");
    ++windows_.samples;
    Offenders offenders;
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      const std::string name = "system/gpu/" + std::to_string(i);
      std::deque<double>& window = windows_.of[name];
      append(window, gpus[i], options_.window);
      if (windows_.samples >= options_.patience) weigh(name, sorted(window), offenders);
    }
    return offenders.finding(
        {{"threshold_p95", options_.threshold_p95}, {"threshold_p5", options_.threshold_p5}});
  }

  void remember(StateWriter& state) const override { windows_.remember(state); }
  void recall(const StateReader& state) override { windows_.recall(state); }

 private:
  void weigh(const std::string& name, const std::vector<double>& uses, Offenders& offenders) const {
    const double high = quantile(uses, 0.95), low = quantile(uses, 0.05);
    if (high < options_.threshold_p95)
      offenders.add(name, 100.0 - high, high,
                    "it is used too little: percentile 95 is " + five_digits(high) +
                        " %, expected at least " + five_digits(options_.threshold_p95) + " %");
    else if (low < options_.threshold_p5)
      offenders.add(name, -low, low,
                    "it is used unsteadily: percentile 5 is " + five_digits(low) + " %, expected at least " +
                        five_digits(options_.threshold_p5) + " %");
  }

  Options options_;
  SampleWindows windows_;
};

}  // namespace

TRAINYARD_PLUGIN(LowGpuUtilization)
