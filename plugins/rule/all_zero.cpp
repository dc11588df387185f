// A tensor that is zero, wholly or for the most part.
#include "findings.hpp"

namespace {

using namespace trainyard;
using namespace rules;

class AllZero final : public Rule {
 public:
  struct Options {
    std::optional<std::string> tensors;
    double threshold = 100.0;
  };
  static void describe(Manifest<Options>& m) {
    m.name("all_zero").version("1.0.0").summary("A tensor has too many zeros.");
    needs_collection(m);
    m.needs("prefers grads where tensors = none");
    m.option("tensors", &Options::tensors,
             "collection or expression; weights and their gradients without one: ^(?!optimizer/).*weight$");
    m.option("threshold", &Options::threshold, "share of zeros that is one too many, percent")
        .above(0.0)
        .max(100.0);
  }
  explicit AllZero(const Options& options)
      : options_(options), tensors_(options.tensors.value_or("^(?!optimizer/).*weight$")) {}

  std::vector<Watch> watches() const override { return {{tensors_}}; }

  std::optional<Finding> evaluate(const Trial& trial, const StepRecord& now) override {
    Offenders offenders;
    for (const TensorRecord* tensor : trial.tensors(now, tensors_)) {
      const Statistics numbers = tensor->numbers();
      if (numbers.count == 0) continue;
      const double share = 100.0 * static_cast<double>(numbers.zeros) / static_cast<double>(numbers.count);
      if (share < options_.threshold) continue;
      offenders.add(tensor->name, share, share,
                    five_digits(share) + " % of " + std::to_string(numbers.count) +
                        " elements are zero, expected less than " + five_digits(options_.threshold) + " %");
    }
    return offenders.finding({{"threshold", options_.threshold}});
  }

 private:
  Options options_;
  std::string tensors_;  ///< which it watches
};

}  // namespace

TRAINYARD_PLUGIN(AllZero)
