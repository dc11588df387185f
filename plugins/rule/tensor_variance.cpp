// A tensor that varies too much or too little.
#include <trainyard/host.hpp>

#include "findings.hpp"

namespace {

using namespace trainyard;
using namespace rules;

class TensorVariance final : public Rule {
 public:
  struct Options {
    std::string tensors = "weights";
    std::optional<double> max_threshold, min_threshold;
  };
  static void describe(Manifest<Options>& m) {
    m.name("tensor_variance").version("1.0.0").summary("The variance of a tensor is too high or too low.");
    needs_collection(m);
    m.option("tensors", &Options::tensors, "collection or expression");
    m.option("max_threshold", &Options::max_threshold, "highest variance").min(0.0);
    m.option("min_threshold", &Options::min_threshold, "lowest variance").min(0.0);
  }
  explicit TensorVariance(const Options& options) : options_(options) {}

  std::vector<Watch> watches() const override {
    if (!options_.max_threshold && !options_.min_threshold)
      host().log(
          LogLevel::warning,
          "neither max_threshold nor min_threshold is given: this rule cannot fire; give at least one");
    return {{options_.tensors}};
  }

  std::optional<Finding> evaluate(const Trial& trial, const StepRecord& now) override {
    Offenders offenders;
    for (const TensorRecord* tensor : trial.tensors(now, options_.tensors)) {
      const double variance = tensor->numbers().variance();
      const std::string says = "variance is " + five_digits(variance);
      if (options_.max_threshold && variance > *options_.max_threshold)
        offenders.add(tensor->name, variance / *options_.max_threshold, variance,
                      says + ", above " + five_digits(*options_.max_threshold));
      if (options_.min_threshold && variance < *options_.min_threshold)
        offenders.add(tensor->name, *options_.min_threshold / variance, variance,
                      says + ", below " + five_digits(*options_.min_threshold));
    }
    std::vector<std::pair<std::string, double>> limits;
    if (options_.max_threshold) limits.emplace_back("max_threshold", *options_.max_threshold);
    if (options_.min_threshold) limits.emplace_back("min_threshold", *options_.min_threshold);
    return offenders.finding(std::move(limits));
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(TensorVariance)
