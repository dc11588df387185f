// A tensor that stands still: its values at the last looks are all close to those of now.
#include <ATen/ops/allclose.h>

#include "findings.hpp"
#include "memory.hpp"

namespace {

using namespace trainyard;
using namespace rules;

class UnchangedTensor final : public Rule {
 public:
  struct Options {
    std::string tensors = "weights";
    std::int64_t num_steps = 3;
    double rtol = 1e-5;
    double atol = 1e-8;
    bool equal_nan = false;
  };
  static void describe(Manifest<Options>& m) {
    m.name("unchanged_tensor").version("1.0.0").summary("A tensor does not change any more.");
    needs_collection(m);
    m.option("tensors", &Options::tensors, "collection or expression");
    m.option("num_steps", &Options::num_steps, "looks that are compared, that of now included").min(2);
    m.option("rtol", &Options::rtol, "|x - y| may be atol + rtol |y|, y the earlier one").min(0.0);
    m.option("atol", &Options::atol, "see rtol").min(0.0);
    m.option("equal_nan", &Options::equal_nan, "NaN is close to NaN");
  }
  explicit UnchangedTensor(const Options& options) : options_(options) {}

  std::vector<Watch> watches() const override { return {{options_.tensors, true}}; }

  std::optional<Finding> evaluate(const Trial& trial, const StepRecord& now) override {
    Offenders offenders;
    for (const TensorRecord* tensor : trial.tensors(now, options_.tensors)) {
      const at::Tensor& value = values_of(*tensor);
      std::deque<at::Tensor>& earlier = earlier_[tensor->name];
      const std::int64_t looks = options_.num_steps - 1;
      if (std::ssize(earlier) >= looks &&
          std::all_of(earlier.end() - looks, earlier.end(),
                      [&](const at::Tensor& old) { return close(value, old); }))
        offenders.add(tensor->name, static_cast<double>(value.numel()), static_cast<double>(value.numel()),
                      "none of its " + std::to_string(value.numel()) + " elements changed over " +
                          std::to_string(options_.num_steps) + " looks, expected a change");
      earlier.push_back(value);
      while (std::ssize(earlier) > looks) earlier.pop_front();
    }
    return offenders.finding({{"num_steps", static_cast<double>(options_.num_steps)}});
  }

  void remember(StateWriter& state) const override {
    for (const auto& [name, values] : earlier_)
      for (std::size_t i = 0; i < values.size(); ++i)
        state.tensor("earlier/" + std::to_string(i) + "/" + name, values[i]);
  }
  void recall(const StateReader& state) override {
    earlier_.clear();
    for (std::size_t i = 0;; ++i) {
      const ByTensor<at::Tensor> values = recall_tensors(state, "earlier/" + std::to_string(i));
      if (values.empty()) return;
      for (const auto& [name, value] : values) earlier_[name].push_back(value);
    }
  }

 private:
  bool close(const at::Tensor& value, const at::Tensor& old) const {
    return value.sizes() == old.sizes() && at::allclose(value.to(at::kDouble), old.to(at::kDouble),
                                                        options_.rtol, options_.atol, options_.equal_nan);
  }

  Options options_;
  ByTensor<std::deque<at::Tensor>> earlier_;  ///< oldest first
};

}  // namespace

TRAINYARD_PLUGIN(UnchangedTensor)
