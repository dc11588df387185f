// Losses and metrics of the CPU by kernels that look at an output once (kernels/cpu/losses.hpp), and the node
// of a loss whose gradient was made along with it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/TensorSubclassLikeUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <trainyard/error.hpp>

#include "kernels/cpu/losses.hpp"

namespace losses {

using namespace trainyard;

/// Whether kernels may read its memory: floats of the CPU that nothing but autograd's backward looks at.
inline bool is_plain(const at::Tensor& x) {
  return x.is_cpu() && x.scalar_type() == at::kFloat && x.layout() == at::kStrided &&
         !at::isTensorSubclassLike(x) && !x._fw_grad(0).defined();
}

inline bool is_classes(const at::Tensor& target) {
  return target.is_cpu() && target.scalar_type() == at::kLong && !at::isTensorSubclassLike(target);
}

inline bool has_gradient(const at::Tensor& x) {
  return at::GradMode::is_enabled() && x.requires_grad();
}

/// Calls with ranges of `count` items of `size` elements, on the threads of LibTorch where they are worth it.
template <class Use>
void share_out(std::int64_t count, std::int64_t size, const Use& use) {
  constexpr std::int64_t elements_a_task = 1 << 15, elements_of_an_item = 32;  // that its fixed cost is worth
  at::parallel_for(0, count, 1 + elements_a_task / (size + elements_of_an_item), use);
}

/// Without gaps.
inline at::Tensor in_a_piece(const at::Tensor& x) {
  const at::NoGradGuard no_grad;
  return x.contiguous();
}

/// [n, ..., classes] as rows, each without gaps.
inline at::Tensor score_rows(const at::Tensor& scores) {
  const at::NoGradGuard no_grad;
  const at::Tensor rows = scores.dim() == 2 ? scores : scores.reshape({-1, scores.size(-1)});
  return rows.stride(1) == 1 || rows.size(1) == 1 ? rows : rows.contiguous();
}

/// Throws where a target, int64 and contiguous, is none of the classes and not ignored.
inline void require_classes(const at::Tensor& target, std::int64_t classes, std::int64_t ignored) {
  const std::int64_t* const named = target.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < target.numel(); ++i)
    if ((named[i] < 0 || named[i] >= classes) && named[i] != ignored)
      throw PluginError("target " + std::to_string(i) + " of the batch is class " + std::to_string(named[i]) +
                        ", and there are scores for the classes 0 to " + std::to_string(classes - 1));
}

/// Has the gradient from the forward pass; backward scales it. A backward that is differentiated itself
/// (create_graph) is that of the same loss by operators.
class LossNode final : public torch::autograd::Node {
 public:
  using ByOperators = std::function<at::Tensor(const at::Tensor& input)>;

  LossNode(const at::Tensor& input, at::Tensor gradient, ByOperators by_operators)
      : input_(input, /*is_output=*/false),
        gradient_(std::move(gradient)),
        by_operators_(std::move(by_operators)) {}

  std::string name() const override { return "FusedLossBackward"; }
  void will_release_variables() override { is_last_ = true; }
  void release_variables() override {
    gradient_.reset();
    input_.reset_data();
    by_operators_ = {};
  }

  torch::autograd::variable_list apply(torch::autograd::variable_list&& given) override {
    TORCH_CHECK(gradient_.defined(), torch::autograd::ERR_BACKWARD_TWICE);
    const at::Tensor& factor = given.front();
    if (!factor.defined()) return {at::Tensor()};
    if (at::GradMode::is_enabled()) {
      const at::Tensor input = input_.unpack();
      return torch::autograd::grad({by_operators_(input)}, {input}, {factor}, /*retain_graph=*/true,
                                   /*create_graph=*/true);
    }
    const at::Tensor scale = along_members(factor);
    if (!is_last_ || !is_plain(factor)) return {gradient_.mul(scale)};
    if (!is_one(factor)) gradient_.mul_(scale);
    return {std::move(gradient_)};
  }

 private:
  /// Of a loss for each member: over the gradients [members, ...].
  at::Tensor along_members(const at::Tensor& factor) const {
    if (factor.dim() == 0) return factor;
    std::vector<std::int64_t> shape(static_cast<std::size_t>(gradient_.dim()), 1);
    shape[0] = factor.size(0);
    return factor.reshape(shape);
  }
  static bool is_one(const at::Tensor& factor) {
    const at::Tensor all = factor.contiguous();
    const float* const first = all.const_data_ptr<float>();
    return std::all_of(first, first + all.numel(), [](float each) { return each == 1.0F; });
  }

  torch::autograd::SavedVariable input_;
  at::Tensor gradient_;
  ByOperators by_operators_;
  bool is_last_ = false;  ///< nobody goes back through it again
};

/// The loss, or that of each member: differentiable in `input` where there is a `gradient`, of its shape.
template <class ByOperators>
at::Tensor with_gradient(at::Tensor value, const at::Tensor& input, at::Tensor gradient,
                         ByOperators&& by_operators) {
  if (!gradient.defined()) return value;
  const std::shared_ptr<LossNode> node(
      new LossNode(input, std::move(gradient), std::forward<ByOperators>(by_operators)),
      torch::autograd::deleteNode);
  node->set_next_edges(torch::autograd::collect_next_edges(input));
  torch::autograd::set_history(value, node);
  return value;
}

template <class ByOperators>
at::Tensor with_gradient(double loss, const at::Tensor& input, at::Tensor gradient,
                         ByOperators&& by_operators) {
  return with_gradient(at::scalar_tensor(loss, input.options()), input, std::move(gradient),
                       std::forward<ByOperators>(by_operators));
}

}  // namespace losses
