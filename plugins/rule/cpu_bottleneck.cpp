// GPUs that wait for the CPU.
#include "bottleneck.hpp"

namespace {

using namespace trainyard;
using namespace rules;

class CpuBottleneck final : public Bottleneck {
 public:
  struct Options {
    double threshold = 50.0;
    double gpu_threshold = 10.0;
    double cpu_threshold = 90.0;
    std::int64_t patience = 1000;
  };
  static void describe(Manifest<Options>& m) {
    m.name("cpu_bottleneck").version("1.0.0").summary("A GPU is idle while the CPU is busy.");
    m.option("threshold", &Options::threshold, "highest share of such samples, percent").range(0.0, 100.0);
    m.option("gpu_threshold", &Options::gpu_threshold, "a GPU is idle below it, percent").range(0.0, 100.0);
    m.option("cpu_threshold", &Options::cpu_threshold, "the CPU is busy above it, percent").range(0.0, 100.0);
    m.option("patience", &Options::patience, "samples before it looks for the first time").min(1);
  }
  explicit CpuBottleneck(const Options& options) : options_(options) {}

  std::vector<Watch> watches() const override { return {{"^system/cpu$", true}, {"^system/gpu$", true}}; }

  std::optional<Finding> evaluate(const Trial&, const StepRecord& now) override {
    return count(now, "system/cpu",
                 {options_.threshold, options_.gpu_threshold, options_.cpu_threshold, options_.patience});
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(CpuBottleneck)
