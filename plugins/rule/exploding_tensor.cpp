// A tensor with elements that are not finite.
#include "findings.hpp"

namespace {

using namespace trainyard;
using namespace rules;

class ExplodingTensor final : public Rule {
 public:
  struct Options {
    std::optional<std::string> tensors;
    bool only_nan = false;
  };
  static void describe(Manifest<Options>& m) {
    m.name("exploding_tensor").version("1.0.0").summary("A tensor has NaN or infinite elements.");
    needs_collection(m);
    m.needs("prefers grads where tensors = none").needs("prefers losses where tensors = none");
    m.option("tensors", &Options::tensors,
             "collection or expression; parameters, their gradients and the loss without one: "
             "(weight|bias)$|[Ll]oss_output");
    m.option("only_nan", &Options::only_nan, "infinite elements are let pass");
  }
  explicit ExplodingTensor(const Options& options)
      : options_(options), tensors_(options.tensors.value_or("(weight|bias)$|[Ll]oss_output")) {}

  std::vector<Watch> watches() const override { return {{tensors_}}; }

  std::optional<Finding> evaluate(const Trial& trial, const StepRecord& now) override {
    Offenders offenders;
    for (const TensorRecord* tensor : trial.tensors(now, tensors_)) {
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
  std::string tensors_;  ///< which it watches
};

}  // namespace

TRAINYARD_PLUGIN(ExplodingTensor)
