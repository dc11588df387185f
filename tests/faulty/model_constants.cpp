// An ensemble of another kind than the shipped one: a round adds a number to each output. It does nothing wrong; the host
// keeps it as it keeps trees.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <trainyard/mixins/grows.hpp>
#include <trainyard/model.hpp>

namespace {

using namespace trainyard;

class Constants final : public Network, public Grows {
 public:
  explicit Constants(std::int64_t outputs) : outputs_(outputs), bytes_(at::empty({0}, at::kByte)) {}

  at::Tensor forward(const Batch& batch, const ForwardContext&) override { return margins(batch); }
  std::vector<NamedTensor> parameters() const override { return {}; }
  std::vector<NamedTensor> buffers() const override { return {{"constants", bytes_}}; }
  std::vector<std::int64_t> output_shape() const override { return {outputs_}; }
  void to(at::Device) override {}

  at::Tensor margins(const Batch& batch) override {
    const at::Tensor sum = rounds().numel() > 0 ? rounds().sum(0) : at::zeros({outputs_});
    return sum.expand({batch.input().size(0), outputs_}).contiguous();
  }
  void grow(const Batch&, const at::Tensor& gradient, const at::Tensor& hessian, double rate) override {
    const c10::NoGradGuard untracked;
    const at::Tensor before = rounds().clone();
    bytes_.resize_({bytes_.numel() + outputs_ * 4});
    if (before.numel() > 0) rounds().narrow(0, 0, before.size(0)).copy_(before);
    rounds()[-1].copy_(gradient.sum(0).div(hessian.sum(0)).mul(-rate));
  }

 private:
  at::Tensor rounds() const { return bytes_.view(at::kFloat).view({-1, outputs_}); }

  std::int64_t outputs_;
  at::Tensor bytes_;
};

class ConstantsModel final : public Model {
 public:
  struct Options {};
  static void describe(Manifest<Options>& m) {
    m.name("constants").version("1.0.0").summary("An ensemble of constants.");
    m.provides("grows").needs("fp32");
  }
  explicit ConstantsModel(const Options&) {}
  std::unique_ptr<Network> build(const ModelContext& context) const override {
    return std::make_unique<Constants>(context.schema.classes);
  }
};

}  // namespace

TRAINYARD_PLUGIN(ConstantsModel)
