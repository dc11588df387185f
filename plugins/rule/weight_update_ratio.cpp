// Weights that move too much or too little from one look to the next: the mean of |w - w'| over the mean of
// |w'|, w' the weights at the look before.
#include "findings.hpp"
#include "memory.hpp"

namespace {

using namespace trainyard;
using namespace rules;

class WeightUpdateRatio final : public Rule {
 public:
  struct Options {
    std::string tensors = "weights";
    double large_threshold = 10.0;
    double small_threshold = 1e-8;
    double epsilon = 1e-9;
  };
  static void describe(Manifest<Options>& m) {
    m.name("weight_update_ratio")
        .version("1.0.0")
        .summary("Weights are updated by too much or too little of themselves.");
    needs_collection(m);
    m.option("tensors", &Options::tensors, "collection or expression of the weights");
    m.option("large_threshold", &Options::large_threshold, "highest ratio").min(0.0);
    m.option("small_threshold", &Options::small_threshold, "lowest ratio").min(0.0);
    m.option("epsilon", &Options::epsilon, "added to the mean of |w'|").min(0.0);
  }
  explicit WeightUpdateRatio(const Options& options) : options_(options) {}

  std::vector<Watch> watches() const override { return {{options_.tensors, true}}; }

  std::optional<Finding> evaluate(const Trial& trial, const StepRecord& now) override {
    Offenders offenders;
    ByTensor<at::Tensor> newest;
    for (const TensorRecord* weight : trial.tensors(now, options_.tensors)) {
      const at::Tensor& value = values_of(*weight);
      newest[weight->name] = value;
      const auto before = last_.find(weight->name);
      if (before == last_.end() || before->second.sizes() != value.sizes() || value.numel() == 0) continue;
      const at::Tensor old = before->second.to(at::kDouble);
      const double update = value.to(at::kDouble).sub(old).abs().mean().item<double>();
      const double ratio = update / (old.abs().mean().item<double>() + options_.epsilon);
      const std::string says = "the update is " + five_digits(ratio) + " of the weights, ";
      if (ratio > options_.large_threshold)
        offenders.add(weight->name, ratio / options_.large_threshold, ratio,
                      says + "above " + five_digits(options_.large_threshold));
      if (ratio < options_.small_threshold)
        offenders.add(weight->name, options_.small_threshold / ratio, ratio,
                      says + "below " + five_digits(options_.small_threshold));
    }
    last_ = std::move(newest);
    return offenders.finding(
        {{"large_threshold", options_.large_threshold}, {"small_threshold", options_.small_threshold}});
  }

  void remember(StateWriter& state) const override { rules::remember(state, "last", last_); }
  void recall(const StateReader& state) override { last_ = recall_tensors(state, "last"); }

 private:
  Options options_;
  ByTensor<at::Tensor> last_;
};

}  // namespace

TRAINYARD_PLUGIN(WeightUpdateRatio)
