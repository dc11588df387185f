// The mean cross entropy over targets of one class each: by a kernel on the CPU, which makes the gradient along
// with the loss, else by operators.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>

#include "fused.hpp"

namespace losses {

struct ClassLoss {
  double smoothing = 0.0;
  std::optional<std::int64_t> ignored;
  at::Tensor weights;  ///< float [classes] on the CPU; undefined: 1

  /// scores [n, ..., classes], targets [n * ...].
  at::Tensor of(const at::Tensor& scores, const at::Tensor& target) const {
    if (is_plain(scores) && is_classes(target)) return by_kernel(scores, target);
    return by_operators(scores, target);
  }

  /// Those of several members, scores [members, n, ..., classes], on the same targets: [members].
  at::Tensor of_members(const at::Tensor& scores, const at::Tensor& target) const {
    if (is_plain(scores) && is_classes(target)) return by_kernel(scores, target, scores.size(0));
    return members_by_operators(scores, target);
  }

  /// What the mean is over: the weights of the targets that count; on the CPU.
  double weight_of(const at::Tensor& target) const {
    const at::Tensor classes = target.contiguous();
    const std::int64_t* const named = classes.const_data_ptr<std::int64_t>();
    if (!weights.defined())
      return static_cast<double>(classes.numel() - std::count(named, named + classes.numel(), to_ignore()));
    require_classes(classes, weights.numel(), to_ignore());
    const float* const weight = weights.const_data_ptr<float>();
    return std::accumulate(named, named + classes.numel(), 0.0, [&](double sum, std::int64_t c) {
      return c == to_ignore() ? sum : sum + static_cast<double>(weight[c]);
    });
  }

 private:
  /// What at::cross_entropy_loss ignores where nobody says so.
  std::int64_t to_ignore() const { return ignored.value_or(-100); }

  at::Tensor by_operators(const at::Tensor& scores, const at::Tensor& target) const {
    const at::Tensor rows = scores.reshape({-1, scores.size(-1)});
    std::optional<at::Tensor> weight;
    if (weights.defined()) weight = weights.to(scores.device(), scores.scalar_type());
    if (!ignored)
      return at::cross_entropy_loss(rows, target, weight, at::Reduction::Mean, to_ignore(), smoothing);
    const at::Tensor sum =
        at::cross_entropy_loss(rows, target, weight, at::Reduction::Sum, to_ignore(), smoothing);
    // A micro-batch may hold nothing that counts: its loss is 0, where ATen's mean is NaN.
    const at::Tensor counts = at::ne(target, to_ignore());
    if (!weight) return at::div(sum, counts.sum().clamp_min(1));
    const at::Tensor counted = weight->index_select(0, at::where(counts, target, 0)).mul(counts).sum();
    return at::div(sum, at::where(counted.eq(0), 1.0, counted));
  }

  at::Tensor members_by_operators(const at::Tensor& scores, const at::Tensor& target) const {
    std::vector<at::Tensor> losses;
    for (const at::Tensor& each : scores.unbind(0)) losses.push_back(by_operators(each, target));
    return at::stack(losses);
  }

  /// What is left of a job from a row on, with the targets from the first on.
  static kernels::CrossEntropy from_row(kernels::CrossEntropy job, std::int64_t row) {
    job.of.scores += row * job.of.stride;
    job.loss += row;
    if (job.gradient != nullptr) job.gradient += row * job.of.classes;
    return job;
  }

  /// The sum is over the rows in their order, whatever the threads. `members`: [members]; none: a scalar.
  at::Tensor by_kernel(const at::Tensor& scores, const at::Tensor& target,
                       std::optional<std::int64_t> members = std::nullopt) const {
    const at::Tensor rows = score_rows(scores);
    const at::Tensor classes = target.contiguous();
    const std::int64_t count = rows.size(0), of_each = classes.numel();
    require_classes(classes, rows.size(1), to_ignore());
    kernels::CrossEntropy job{.of = {rows.const_data_ptr<float>(), rows.stride(0), rows.size(1),
                                     classes.const_data_ptr<std::int64_t>()},
                              .ignored = to_ignore(),
                              .smoothing = smoothing};
    if (weights.defined()) {
      TORCH_CHECK(weights.numel() == rows.size(1), "one weight is needed for each of ", rows.size(1),
                  " classes");
      job.weight = weights.const_data_ptr<float>();
      job.weight_sum = std::accumulate(job.weight, job.weight + job.of.classes, 0.0);
    }
    double weight = weight_of(target);
    if (weight == 0.0 && ignored) weight = 1.0;
    job.scale = 1.0 / weight;
    at::Tensor gradient;
    if (has_gradient(scores)) {
      gradient = at::empty(scores.sizes(), scores.options());
      job.gradient = gradient.mutable_data_ptr<float>();
    }
    std::vector<double> each(static_cast<std::size_t>(count));
    job.loss = each.data();
    share_out(count, job.of.classes, [&job, of_each](std::int64_t begin, std::int64_t end) {
      while (begin < end) {  // members have the same targets
        const std::int64_t first = begin / of_each * of_each, until = std::min(end, first + of_each);
        kernels::loss_kernels().cross_entropy(from_row(job, first), begin - first, until - first);
        begin = until;
      }
    });
    if (!members)
      return with_gradient(
          std::accumulate(each.begin(), each.end(), 0.0) / weight, scores, std::move(gradient),
          [how = *this, target](const at::Tensor& input) { return how.by_operators(input, target); });
    std::vector<double> losses;
    for (std::int64_t member = 0; member < *members; ++member) {
      const auto from = each.begin() + member * target.numel();
      losses.push_back(std::accumulate(from, from + target.numel(), 0.0) / weight);
    }
    return with_gradient(
        at::tensor(losses, scores.options().requires_grad(false)), scores, std::move(gradient),
        [how = *this, target](const at::Tensor& input) { return how.members_by_operators(input, target); });
  }
};

}  // namespace losses
