// A tensor with elements that are not finite.
#include "findings.hpp"

namespace {

using namespace trainyard;
using namespace rules;

class ExplodingTensor final : public Rule {
 public:
  struct Options {
    std::string tensors = "(weight|bias)$|[Ll]oss_output";
    bool only_nan = false;
  };
  static void describe(Manifest<Options>& m) {
    m.name("exploding_tensor").version("1.0.0").summary("A tensor has NaN or infinite elements.");
    m.option("tensors", &Options::tensors,
             "collection or expression; parameters, their gradients and the loss without one");
    m.option("only_nan", &Options::only_nan, "infinite elements are let pass");
  }
  explicit ExplodingTensor(const Options& options) : options_(options) {}

  std::vector<Watch> watches() const override { return {{options_.tensors}}; }

  std::optional<Finding> evaluate(const Trial& trial, const StepRecord& now) override {
    Offenders offenders;
    for (const TensorRecord* tensor : trial.tensors(now, options_.tensors)) {
      const Statistics numbers = tensor->numbers();
      const std::int64_t bad = options_.only_nan ? numbers.nans : numbers.nonfinite();
      if (bad == 0) continue;
      offenders.add(tensor->name, static_cast<double>(bad) / static_cast<double>(numbers.count),
                    static_cast<double>(bad),
                    std::to_string(bad) + " of " + std::to_string(numbers.count) +
                        (options_.only_nan ? " elements are NaN" : " elements are not finite") +
                        ", expected none");
    }
    return offenders.finding({});
  }

 private:
  Options options_;
};

}  // namespace

TRAINYARD_PLUGIN(ExplodingTensor)
