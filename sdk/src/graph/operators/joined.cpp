#include "joined.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <vector>

namespace trainyard {
namespace {

/// Hands each part its piece of a gradient.
class JoinBackward final : public torch::autograd::Node {
 public:
  explicit JoinBackward(torch::autograd::edge_list edges) : Node(std::move(edges)) {}

  std::vector<std::int64_t> lengths;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    torch::autograd::variable_list pieces(lengths.size());
    if (!gradients[0].defined()) return pieces;
    std::int64_t begin = 0;
    for (std::size_t i = 0; i < lengths.size(); begin += lengths[i++])
      if (should_compute_output(i)) pieces[i] = gradients[0].narrow(0, begin, lengths[i]);
    return pieces;
  }
  std::string name() const override { return "JoinBackward"; }
};

}  // namespace

std::optional<at::Tensor> joined_in_place(std::span<const at::Tensor> parts) {
  const at::Tensor& first = parts[0];
  if (!first.device().is_cpu() || first.dim() == 0) return std::nullopt;
  std::int64_t end = first.storage_offset(), rows = 0;
  for (const at::Tensor& each : parts) {
    if (!each.is_contiguous() || each.storage_offset() != end || each.scalar_type() != first.scalar_type() ||
        !each.storage().is_alias_of(first.storage()) || each.dim() != first.dim() ||
        !std::equal(each.sizes().begin() + 1, each.sizes().end(), first.sizes().begin() + 1))
      return std::nullopt;
    end += each.numel();
    rows += each.size(0);
  }
  std::vector<std::int64_t> sizes = first.sizes().vec();
  sizes[0] = rows;
  at::Tensor whole;
  {
    const c10::NoGradGuard guard;
    whole = at::empty({0}, first.options());
    whole.set_(first.storage(), first.storage_offset(), sizes, first.strides());
  }
  const std::vector<at::Tensor> all(parts.begin(), parts.end());
  if (!c10::GradMode::is_enabled() || !torch::autograd::any_variable_requires_grad(all)) return whole;
  const auto node = std::make_shared<JoinBackward>(torch::autograd::collect_next_edges(all));
  for (const at::Tensor& each : all) node->lengths.push_back(each.size(0));
  torch::autograd::set_history(whole, node);
  return whole;
}

}  // namespace trainyard
