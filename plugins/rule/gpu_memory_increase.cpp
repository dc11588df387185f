// Memory of a GPU that fills up: the mean of the newest samples against that of as many before them.
#include <numeric>

#include "samples.hpp"

namespace {

using namespace trainyard;
using namespace rules;

class GpuMemoryIncrease final : public Rule {
 public:
  struct Options {
    double increase = 5.0;
    std::int64_t patience = 1000;
    std::int64_t window = 10;
  };
  static void describe(Manifest<Options>& m) {
    m.name("gpu_memory_increase").version("1.0.0").summary("The memory of a GPU that is in use grows.");
    m.option("increase", &Options::increase, "highest growth of the mean, in points of percent").min(0.0);
    m.option("patience", &Options::patience, "samples before it looks for the first time").min(1);
    m.option("window", &Options::window, "samples of a mean").min(1);
  }
  explicit GpuMemoryIncrease(const Options& options) : options_(options) {}

  std::vector<Watch> watches() const override { return {{"^system/gpu_memory$", true}}; }
  std::vector<Mode> modes() const override { return {Mode::global}; }

  std::optional<Finding> evaluate(const Trial&, const StepRecord& now) override {
    const std::vector<double> gpus = samples(now, "system/gpu_memory");
    ++windows_.samples;
    Offenders offenders;
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      const std::string name = "system/gpu_memory/" + std::to_string(i);
      std::deque<double>& window = windows_.of[name];
      append(window, gpus[i], 2 * options_.window);
      if (windows_.samples < options_.patience || std::ssize(window) < 2 * options_.window) continue;
      const auto middle = window.begin() + options_.window;
      const double before = mean(window.begin(), middle), after = mean(middle, window.end());
      if (!(after - before > options_.increase)) continue;
      offenders.add(name, after - before, after - before,
                    "it grew from " + five_digits(before) + " to " + five_digits(after) +
                        " %, expected at most " + five_digits(options_.increase) + " points more");
    }
    return offenders.finding({{"increase", options_.increase}});
  }

  void remember(StateWriter& state) const override { windows_.remember(state); }
  void recall(const StateReader& state) override { windows_.recall(state); }

 private:
  template <class Iterator>
  double mean(Iterator first, Iterator last) const {
    return std::accumulate(first, last, 0.0) / static_cast<double>(options_.window);
  }

  Options options_;
  SampleWindows windows_;
};

}  // namespace

TRAINYARD_PLUGIN(GpuMemoryIncrease)
