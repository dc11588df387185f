#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>

#include <trainyard/model.hpp>

#include "thrower.hpp"

class Net final : public trainyard::Network {
 public:
  explicit Net(const Options& options) : options_(options) {
    weight_ = at::zeros({10, 16});
    weight_.set_requires_grad(true);
  }
  at::Tensor forward(const trainyard::Batch& batch, const trainyard::ForwardContext&) override {
    options_.at("forward");
    at::Tensor output = at::linear(batch.input(), weight_);
    if (output.requires_grad())
      output.register_hook([options = options_](const at::Tensor&) { options.at("backward"); });
    return output;
  }
  std::vector<trainyard::NamedTensor> parameters() const override { return {{"weight", weight_}}; }
  std::vector<trainyard::NamedTensor> buffers() const override { return {}; }
  std::vector<std::int64_t> output_shape() const override { return {10}; }
  void to(at::Device) override {}

 private:
  Options options_;
  at::Tensor weight_;
};

class ModelThrower final : public trainyard::Model {
 public:
  using Options = ::Options;
  static void describe(trainyard::Manifest<Options>& m) {
    describe_thrower(m, {"build"}, {"forward", "backward"});
  }
  explicit ModelThrower(const Options& options) : options_(options) {}
  std::unique_ptr<trainyard::Network> build(const trainyard::ModelContext&) const override {
    options_.at("build");
    return std::make_unique<Net>(options_);
  }

 private:
  Options options_;
};
TRAINYARD_PLUGIN(ModelThrower)
