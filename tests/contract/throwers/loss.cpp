#include <ATen/ops/mean.h>

#include <trainyard/loss.hpp>

#include "thrower.hpp"

class LossThrower final : public trainyard::Loss {
 public:
  using Options = ::Options;
  static void describe(trainyard::Manifest<Options>& m) {
    describe_thrower(m, {"check"}, {"forward", "weight"});
  }
  explicit LossThrower(const Options& options) : options_(options) {}
  void check(const std::vector<std::int64_t>&, const trainyard::BatchSchema&) const override {
    options_.at("check");
  }
  at::Tensor forward(const at::Tensor& output, const trainyard::Batch&) const override {
    options_.at("forward");
    return at::mean(output);
  }
  double weight(const trainyard::Batch& batch) const override {
    options_.at("weight");
    return static_cast<double>(batch.size());
  }

 private:
  Options options_;
};
TRAINYARD_PLUGIN(LossThrower)
