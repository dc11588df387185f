// A loss of a row of outputs, as a C++ template, under autograd: a Loss plugin returns it from `forward`.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/ad/gradient.hpp>
#include <trainyard/ad/row_loss.hpp>

namespace trainyard::ad {

namespace detail {

/// Computes the loss row by row, and its derivatives by the outputs.
template <class F>
class RowLoss final : public AnyRowLoss {
 public:
  explicit RowLoss(const F& f) : f_(f) {}

  double value(std::span<const double> x, std::span<const double> target) const override {
    return evaluate<double>(f_, x, target);
  }
  /// Goes forward where a row is short, which is faster there, else in reverse.
  double gradient(std::span<const double> x, std::span<const double> target,
                  std::span<double> slopes) override {
    if (x.size() > few) return reverse(x, target, slopes);
    std::array<Dual<few>, few> moving;
    for (std::size_t i = 0; i < x.size(); ++i) moving[i] = Dual<few>(x[i], static_cast<int>(i));
    const auto y = evaluate<Dual<few>>(f_, std::span<const Dual<few>>(moving.data(), x.size()), target);
    std::copy_n(y.slopes().begin(), x.size(), slopes.begin());
    return y.inner();
  }
  void curvature(std::span<const double> x, std::span<const double> target, std::span<const double> along,
                 std::span<double> result) const override {
    std::vector<double> at(x.begin(), x.end()), direction(along.begin(), along.end());
    const auto of_target = [&]<class T>(std::span<const T> inputs) -> T { return f_(inputs, target); };
    const auto slopes = gradient_along(of_target, at, direction).slopes;
    for (std::size_t i = 0; i < x.size(); ++i) result[i] = slopes[i].slope(0);
  }

 private:
  double reverse(std::span<const double> x, std::span<const double> target, std::span<double> slopes) {
    tape_.clear();
    inputs_.clear();
    for (const double each : x) inputs_.push_back(tape_.variable(each));
    const auto y = evaluate<Var<>>(f_, std::span<const Var<>>(inputs_), target);
    tape_.backward(y);
    for (std::size_t i = 0; i < x.size(); ++i) slopes[i] = tape_.slope(inputs_[i]);
    return y.inner();
  }

  static constexpr std::size_t few = 4;
  F f_;
  Tape<> tape_;
  std::vector<Var<>> inputs_;
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
  return detail::mean_of_rows(std::make_shared<detail::RowLoss<F>>(f), output, target);
}

}  // namespace trainyard::ad
