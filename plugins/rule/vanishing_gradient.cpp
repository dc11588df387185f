// A gradient so small that its layer does not learn. Every gradient is weighed, not only the first.
#include "findings.hpp"

namespace {

using namespace trainyard;
using namespace rules;

class VanishingGradient final : public Rule {
 public:
  struct Options {
    std::string tensors = "gradients";
    double threshold = 1e-7;
  };
  static void describe(Manifest<Options>& m) {
    m.name("vanishing_gradient").version("1.0.0").summary("The mean of |g| of a gradient is too small.");
    needs_collection(m);
    m.option("tensors", &Options::tensors, "collection or expression of the gradients");
    m.option("threshold", &Options::threshold, "least mean of |g|").min(0.0);
  }
  explicit VanishingGradient(const Options& options) : options_(options) {}

  std::vector<Watch> watches() const override { return {{options_.tensors}}; }

  std::optional<Finding> evaluate(const Trial& trial, const StepRecord& now) override {
    Offenders offenders;
    for (const TensorRecord* gradient : trial.tensors(now, options_.tensors)) {
      const Statistics numbers = gradient->numbers();
      if (numbers.count == 0 || !(numbers.abs_mean() < options_.threshold)) continue;
      offenders.add(
          gradient->name, -numbers.abs_mean(), numbers.abs_mean(),
          "mean |g| is " + five_digits(numbers.abs_mean()) + ", below " + five_digits(options_.threshold));
    }
    return offenders.finding({{"threshold", options_.threshold}});
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(VanishingGradient)
