// A loss of a row of outputs, as a C++ template, under autograd: a Loss plugin returns it from `forward`.
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include <trainyard/ad/gradient.hpp>
#include <trainyard/error.hpp>
#include <trainyard/helpers/shape_text.hpp>

namespace trainyard::ad {

namespace detail {

/// Returns the numbers of a tensor as rows of doubles, on the CPU.
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

/// Computes the loss row by row, and its derivatives by the outputs. S is as in gradient.hpp.
template <class F>
class RowLoss {
 public:
  explicit RowLoss(const F& f) : f_(f) {}

  double value(std::span<const double> x, std::span<const double> target) const {
    return evaluate<double>(f_, x, target);
  }
  /// Goes forward where a row is short, which is faster there, else in reverse.
  double gradient(std::span<const double> x, std::span<const double> target, std::span<double> slopes) {
    if (x.size() > few) return reverse(x, target, slopes);
    std::array<Dual<few>, few> moving;
    for (std::size_t i = 0; i < x.size(); ++i) moving[i] = Dual<few>(x[i], static_cast<int>(i));
    const auto y = evaluate<Dual<few>>(f_, std::span<const Dual<few>>(moving.data(), x.size()), target);
    std::copy_n(y.slopes().begin(), x.size(), slopes.begin());
    return y.inner();
  }
  double reverse(std::span<const double> x, std::span<const double> target, std::span<double> slopes) {
    tape_.clear();
    inputs_.clear();
    for (const double each : x) inputs_.push_back(tape_.variable(each));
    const auto y = evaluate<Var<>>(f_, std::span<const Var<>>(inputs_), target);
    tape_.backward(y);
    for (std::size_t i = 0; i < x.size(); ++i) slopes[i] = tape_.slope(inputs_[i]);
    return y.inner();
  }
  /// Returns H v.
  void curvature(std::span<const double> x, std::span<const double> target, std::span<const double> along,
                 std::span<double> result) const {
    std::vector<double> at(x.begin(), x.end()), direction(along.begin(), along.end());
    const auto of_target = [&]<class T>(std::span<const T> inputs) -> T { return f_(inputs, target); };
    const auto slopes = gradient_along(of_target, at, direction).slopes;
    for (std::size_t i = 0; i < x.size(); ++i) result[i] = slopes[i].slope(0);
  }

 private:
  static constexpr std::size_t few = 4;
  F f_;
  Tape<> tape_;
  std::vector<Var<>> inputs_;
};

template <class F>
struct Holder final : torch::CustomClassHolder {
  explicit Holder(const F& f) : f(f) {}
  F f;
};

/// Returns gradient * scale, differentiable in output and scale. `gradient` is that of the mean over rows.
template <class F>
class ScaledGradient : public torch::autograd::Function<ScaledGradient<F>> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& output,
                            const at::Tensor& scale, const at::Tensor& target, const at::Tensor& gradient,
                            const F& f) {
    context->save_for_backward({output, scale, target, gradient});
    context->saved_data["f"] = c10::IValue::make_capsule(c10::make_intrusive<Holder<F>>(f));
    return gradient.mul(scale);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    if (at::GradMode::is_enabled())
      throw PluginError(
          "a third derivative of a loss of ad/loss.hpp is not computed: ask for the second without "
          "create_graph");
    const auto saved = context->get_saved_variables();
    const at::Tensor &output = saved[0], &scale = saved[1], &target = saved[2], &gradient = saved[3];
    const auto holder = c10::static_intrusive_pointer_cast<Holder<F>>(context->saved_data["f"].toCapsule());
    const RowLoss<F> loss(holder->f);
    const Rows x(output), t(target), along(gradients[0]);
    const at::Tensor result = at::empty(output.sizes(), at::kDouble);
    const std::int64_t rows = output.size(0), length = output.size(1);
    for (std::int64_t i = 0; i < rows; ++i)
      loss.curvature(x[i], t[i], along[i],
                     {result.mutable_data_ptr<double>() + i * length, static_cast<std::size_t>(length)});
    return {
        result.div(rows).to(output.scalar_type()).mul(scale), gradients[0].mul(gradient).sum(), {}, {}, {}};
  }
};

template <class F>
class MeanLoss : public torch::autograd::Function<MeanLoss<F>> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& output,
                            const at::Tensor& target, const F& f, bool differentiable) {
    RowLoss<F> loss(f);
    const Rows x(output), t(target);
    const std::int64_t rows = output.size(0), length = output.size(1);
    const at::Tensor gradient = at::empty({differentiable ? rows : 0, length}, at::kDouble);
    double* slopes = gradient.mutable_data_ptr<double>();
    double sum = 0.0;
    for (std::int64_t i = 0; i < rows; ++i)
      sum += differentiable
                 ? loss.gradient(x[i], t[i], {slopes + i * length, static_cast<std::size_t>(length)})
                 : loss.value(x[i], t[i]);
    if (differentiable) {
      context->save_for_backward({output, target, gradient.div(rows).to(output.scalar_type())});
      context->saved_data["f"] = c10::IValue::make_capsule(c10::make_intrusive<Holder<F>>(f));
    }
    return at::scalar_tensor(sum / static_cast<double>(rows), output.options());
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto saved = context->get_saved_variables();
    if (!at::GradMode::is_enabled()) return {saved[2].mul(gradients[0]), {}, {}, {}};
    const auto holder = c10::static_intrusive_pointer_cast<Holder<F>>(context->saved_data["f"].toCapsule());
    return {ScaledGradient<F>::apply(saved[0], gradients[0], saved[1], saved[2], holder->f), {}, {}, {}};
  }
};

}  // namespace detail

/// Returns the mean over rows of f(row of outputs, row of targets), twice differentiable in `output`. F is a
/// function object, copied, with
///
///   template <class T> T operator()(std::span<const T> output, std::span<const double> target) const;
///
/// output: [rows, n], of floating point; target: [rows, m]. Rows are computed in double precision, one after the other,
/// on the CPU: a tensor of another device is copied there and the loss back, which waits for that device. The result
/// has the type of the output. Throws PluginError where the shapes do not fit.
template <class F>
at::Tensor mean_loss(const F& f, const at::Tensor& output, const at::Tensor& target) {
  if (output.dim() != 2 || target.dim() != 2 || output.size(0) != target.size(0) || output.size(0) == 0)
    throw PluginError(
        "ad::mean_loss takes outputs [rows, n] and targets [rows, m] with one row or more, and got " +
        shape_text(output.sizes().vec()) + " and " + shape_text(target.sizes().vec()));
  const bool differentiable = at::GradMode::is_enabled() && output.requires_grad();
  return detail::MeanLoss<F>::apply(output.to(at::kCPU), target.to(at::kCPU), f, differentiable)
      .to(output.device());
}

}  // namespace trainyard::ad
