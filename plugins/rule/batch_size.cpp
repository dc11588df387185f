// A batch so small that neither the CPU nor the GPUs nor their memory are used.
#include "quantiles.hpp"
#include "samples.hpp"

namespace {

using namespace trainyard;
using namespace rules;

class BatchSize final : public Rule {
 public:
  struct Options {
    double cpu_threshold_p95 = 70.0;
    double gpu_threshold_p95 = 70.0;
    double gpu_memory_threshold_p95 = 70.0;
    std::int64_t patience = 1000;
    std::int64_t window = 500;
  };
  static void describe(Manifest<Options>& m) {
    m.name("batch_size").version("1.0.0").summary("CPU, GPUs and their memory are all used too little.");
    m.option("cpu_threshold_p95", &Options::cpu_threshold_p95,
             "the CPU is used too little where the percentile 95 of its use is below, percent")
        .range(0.0, 100.0);
    m.option("gpu_threshold_p95", &Options::gpu_threshold_p95, "the same of each GPU").range(0.0, 100.0);
    m.option("gpu_memory_threshold_p95", &Options::gpu_memory_threshold_p95, "the same of its memory")
        .range(0.0, 100.0);
    m.option("patience", &Options::patience, "samples before it looks for the first time").min(1);
    m.option("window", &Options::window, "newest samples that percentiles are of").min(1);
  }
  explicit BatchSize(const Options& options) : options_(options) {}

  std::vector<Watch> watches() const override {
    return {{"^system/cpu$", true}, {"^system/gpu$", true}, {"^system/gpu_memory$", true}};
  }
  std::vector<Mode> modes() const override { return {Mode::global}; }

  std::optional<Finding> evaluate(const Trial&, const StepRecord& now) override {
    const std::optional<double> cpu = sample(now, "system/cpu");
    const std::vector<double> gpus = samples(now, "system/gpu"), memory = samples(now, "system/gpu_memory");
    if (!cpu || gpus.empty() || memory.empty()) return std::nullopt;
    ++windows_.samples;
    append(windows_.of["system/cpu"], *cpu, options_.window);
    for (std::size_t i = 0; i < gpus.size(); ++i)
      append(windows_.of["system/gpu/" + std::to_string(i)], gpus[i], options_.window);
    for (std::size_t i = 0; i < memory.size(); ++i)
      append(windows_.of["system/gpu_memory/" + std::to_string(i)], memory[i], options_.window);
    if (windows_.samples < options_.patience) return std::nullopt;

    Finding finding;
    for (const auto& [name, window] : windows_.of) {
      const double used = quantile(sorted(window), 0.95);
      if (!(used < threshold(name))) return std::nullopt;
      finding.tensors.push_back(name);
      finding.evidence.emplace_back(name, used);
      finding.message += (finding.message.empty() ? "" : ", ") + name + " " + five_digits(used) + " %";
    }
    finding.message = "percentile 95 of the use: " + finding.message +
                      "; expected one at its threshold (CPU " + five_digits(options_.cpu_threshold_p95) +
                      " %, GPU " + five_digits(options_.gpu_threshold_p95) + " %, its memory " +
                      five_digits(options_.gpu_memory_threshold_p95) +
                      " %); try a larger batch, or a smaller machine";
    return finding;
  }

  void remember(StateWriter& state) const override { windows_.remember(state); }
  void recall(const StateReader& state) override { windows_.recall(state); }

 private:
  double threshold(const std::string& name) const {
    if (name.starts_with("system/gpu_memory")) return options_.gpu_memory_threshold_p95;
    return name.starts_with("system/gpu") ? options_.gpu_threshold_p95 : options_.cpu_threshold_p95;
  }

  Options options_;
  SampleWindows windows_;
};

}  // namespace

TRAINYARD_PLUGIN(BatchSize)
