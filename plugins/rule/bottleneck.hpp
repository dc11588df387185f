// GPUs that stand idle while something else is busy.
#pragma once

#include "samples.hpp"

namespace rules {

using namespace trainyard;

/// Counts samples in which a GPU is below its threshold while something else is above its own.
class Bottleneck : public Rule {
 public:
  std::vector<Mode> modes() const override { return {Mode::global}; }

  void remember(StateWriter& state) const override {
    state.scalar("samples", samples_);
    state.scalar("blocked", blocked_);
  }
  void recall(const StateReader& state) override {
    samples_ = state.integer("samples");
    blocked_ = state.integer("blocked");
  }

 protected:
  struct Limits {
    double share;  ///< of the samples, percent
    double gpu, other;
    std::int64_t patience;
  };
  std::optional<Finding> count(const StepRecord& now, const std::string& other, const Limits& limits) {
    const std::vector<double> gpus = samples(now, "system/gpu");
    const std::optional<double> busy = sample(now, other);
    if (gpus.empty() || !busy) return std::nullopt;
    const bool idle = *std::min_element(gpus.begin(), gpus.end()) < limits.gpu;
    ++samples_;
    if (idle && *busy > limits.other) ++blocked_;
    if (samples_ < limits.patience) return std::nullopt;
    const double share = 100.0 * static_cast<double>(blocked_) / static_cast<double>(samples_);
    if (!(share > limits.share)) return std::nullopt;
    Finding finding;
    finding.tensors = {"system/gpu", other};
    finding.message = "a GPU was below " + five_digits(limits.gpu) + " % while " + other + " was above " +
                      five_digits(limits.other) + " % in " + five_digits(share) + " % of " +
                      std::to_string(samples_) + " samples, expected at most " + five_digits(limits.share) +
                      " %";
    finding.evidence = {{"share", share}, {"threshold", limits.share}};
    return finding;
  }

 private:
  std::int64_t samples_ = 0, blocked_ = 0;
};

}  // namespace rules
