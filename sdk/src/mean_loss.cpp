#include <string>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include <trainyard/ad/loss.hpp>
#include <trainyard/error.hpp>
#include <trainyard/helpers/shape_text.hpp>

namespace trainyard::ad::detail {
namespace {

using torch::autograd::AutogradContext, torch::autograd::variable_list;
using LossPtr = std::shared_ptr<AnyRowLoss>;

/// The numbers of a tensor as rows of doubles, on the CPU.
class Rows {
 public:
  explicit Rows(const at::Tensor& tensor)
      : tensor_(tensor.detach().to(at::kCPU, at::kDouble).contiguous()), length_(tensor.size(1)) {}
  std::span<const double> operator[](std::int64_t row) const {
    return {tensor_.const_data_ptr<double>() + row * length_, static_cast<std::size_t>(length_)};
  }

 private:
  at::Tensor tensor_;
  std::int64_t length_;
};

struct Holder final : torch::CustomClassHolder {
  explicit Holder(LossPtr given) : loss(std::move(given)) {}
  LossPtr loss;
};

void keep(AutogradContext* context, LossPtr loss) {
  context->saved_data["loss"] = c10::IValue::make_capsule(c10::make_intrusive<Holder>(std::move(loss)));
}

LossPtr kept(AutogradContext* context) {
  return c10::static_intrusive_pointer_cast<Holder>(context->saved_data["loss"].toCapsule())->loss;
}

/// Returns gradient * scale, differentiable in output and scale. `gradient` is that of the mean over rows.
class ScaledGradient : public torch::autograd::Function<ScaledGradient> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& output, const at::Tensor& scale,
                            const at::Tensor& target, const at::Tensor& gradient, const LossPtr& loss) {
    context->save_for_backward({output, scale, target, gradient});
    keep(context, loss);
    return gradient.mul(scale);
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    if (at::GradMode::is_enabled())
      throw PluginError(
          "a third derivative of a loss of ad/loss.hpp is not computed: ask for the second without "
          "create_graph");
    const auto saved = context->get_saved_variables();
    const at::Tensor &output = saved[0], &scale = saved[1], &target = saved[2], &gradient = saved[3];
    const LossPtr loss = kept(context);
    const Rows x(output), t(target), along(gradients[0]);
    const at::Tensor result = at::empty(output.sizes(), at::kDouble);
    const std::int64_t rows = output.size(0), length = output.size(1);
    for (std::int64_t i = 0; i < rows; ++i)
      loss->curvature(x[i], t[i], along[i],
                      {result.mutable_data_ptr<double>() + i * length, static_cast<std::size_t>(length)});
    return {
        result.div(rows).to(output.scalar_type()).mul(scale), gradients[0].mul(gradient).sum(), {}, {}, {}};
  }
};

class MeanLoss : public torch::autograd::Function<MeanLoss> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& output, const at::Tensor& target,
                            const LossPtr& loss, bool differentiable) {
    const Rows x(output), t(target);
    const std::int64_t rows = output.size(0), length = output.size(1);
    const at::Tensor gradient = at::empty({differentiable ? rows : 0, length}, at::kDouble);
    double* slopes = gradient.mutable_data_ptr<double>();
    double sum = 0.0;
    for (std::int64_t i = 0; i < rows; ++i)
      sum += differentiable
                 ? loss->gradient(x[i], t[i], {slopes + i * length, static_cast<std::size_t>(length)})
                 : loss->value(x[i], t[i]);
    if (differentiable) {
      context->save_for_backward({output, target, gradient.div(rows).to(output.scalar_type())});
      keep(context, loss);
    }
    return at::scalar_tensor(sum / static_cast<double>(rows), output.options());
  }
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    if (!at::GradMode::is_enabled()) return {saved[2].mul(gradients[0]), {}, {}, {}};
    return {ScaledGradient::apply(saved[0], gradients[0], saved[1], saved[2], kept(context)), {}, {}, {}};
  }
};

}  // namespace

at::Tensor mean_of_rows(std::shared_ptr<AnyRowLoss> loss, const at::Tensor& output,
                        const at::Tensor& target) {
  if (output.dim() != 2 || target.dim() != 2 || output.size(0) != target.size(0) || output.size(0) == 0)
    throw PluginError(
        "ad::mean_loss takes outputs [rows, n] and targets [rows, m] with one row or more, and got " +
        shape_text(output.sizes().vec()) + " and " + shape_text(target.sizes().vec()));
  const bool differentiable = at::GradMode::is_enabled() && output.requires_grad();
  return MeanLoss::apply(output.to(at::kCPU), target.to(at::kCPU), std::move(loss), differentiable)
      .to(output.device());
}

}  // namespace trainyard::ad::detail
