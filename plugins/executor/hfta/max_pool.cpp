#include "max_pool.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "kernels/cpu/max_pool.hpp"

namespace hfta {

namespace kernels = trainyard::kernels;

namespace {

using torch::autograd::variable_list;

std::int64_t planes_of(const at::Tensor& x) {
  return x.numel() / (x.size(-1) * x.size(-2));
}

template <class Use>
void share_planes(const at::Tensor& x, const Use& use) {
  constexpr std::int64_t numbers_a_task = 1 << 15;
  const std::int64_t grain = 1 + numbers_a_task / (x.size(-1) * x.size(-2));
  at::parallel_for(0, planes_of(x), grain, use);
}

kernels::MaxPool job_of(const FusedNode& node, const at::Tensor& x) {
  const std::vector<std::int64_t> kernel = node.node.integers("kernel_shape", {});
  const std::vector<std::int64_t> strides = node.node.integers("strides", {1, 1});
  return {.rows = x.size(-2),
          .columns = x.size(-1),
          .out_rows = (x.size(-2) - kernel[0]) / strides[0] + 1,
          .out_columns = (x.size(-1) - kernel[1]) / strides[1] + 1,
          .kernel_rows = kernel[0],
          .kernel_columns = kernel[1],
          .row_stride = strides[0],
          .column_stride = strides[1],
          .relu = node.relu};
}

class MaxPoolNode final : public torch::autograd::Node {
 public:
  MaxPoolNode(const kernels::MaxPool& job, std::vector<std::int64_t> sizes, at::Tensor places)
      : job_(job), sizes_(std::move(sizes)), places_(std::move(places)) {}
  std::string name() const override { return "MaxPoolOfMembersBackward"; }
  void release_variables() override { places_.reset(); }

  variable_list apply(variable_list&& gradients) override {
    TORCH_CHECK(places_.defined(), torch::autograd::ERR_BACKWARD_TWICE);
    if (!gradients.front().defined()) return {at::Tensor()};
    const at::NoGradGuard untracked;
    const at::Tensor given = gradients.front().contiguous();
    at::Tensor found = at::detail::empty_cpu(sizes_, given.options());
    kernels::MaxPool job = job_;
    job.place = places_.mutable_data_ptr<std::int32_t>();
    job.given = given.const_data_ptr<float>();
    job.x_gradient = found.mutable_data_ptr<float>();
    share_planes(found, [&](std::int64_t begin, std::int64_t end) {
      kernels::max_pool_kernels().backward(job, begin, end);
    });
    return {found};
  }

 private:
  kernels::MaxPool job_;
  std::vector<std::int64_t> sizes_;
  at::Tensor places_;
};

}  // namespace

at::Tensor max_pool(const FusedNode& node, const at::Tensor& x) {
  torch::autograd::edge_list edges;
  const bool tracked = at::GradMode::is_enabled() && x.requires_grad();
  if (tracked) edges = torch::autograd::collect_next_edges(x);
  const at::NoGradGuard untracked;
  const at::Tensor whole = x.contiguous();
  kernels::MaxPool job = job_of(node, whole);
  std::vector<std::int64_t> sizes = whole.sizes().vec();
  sizes[sizes.size() - 2] = job.out_rows;
  sizes[sizes.size() - 1] = job.out_columns;
  at::Tensor y = at::detail::empty_cpu(sizes, at::TensorOptions(at::kFloat));
  at::Tensor places = at::detail::empty_cpu(sizes, at::TensorOptions(at::kInt));
  job.x = whole.const_data_ptr<float>();
  job.y = y.mutable_data_ptr<float>();
  job.place = places.mutable_data_ptr<std::int32_t>();
  share_planes(whole, [&](std::int64_t begin, std::int64_t end) {
    kernels::max_pool_kernels().forward(job, begin, end);
  });
  if (!tracked) return y;
  const std::shared_ptr<MaxPoolNode> made(
      new MaxPoolNode(job_of(node, whole), whole.sizes().vec(), std::move(places)),
      torch::autograd::deleteNode);
  made->set_next_edges(std::move(edges));
  torch::autograd::set_history(y, made);
  return y;
}

bool has_close_windows(const Graph& graph, const Node& node) {
  if (node.op != "MaxPool" || node.outputs.size() != 1 || node.integers("kernel_shape", {}).size() != 2)
    return false;
  const auto all_are = [&](const char* name, std::int64_t value) {
    return std::ranges::all_of(node.integers(name, {}), [&](std::int64_t each) { return each == value; });
  };
  const std::vector<std::int64_t>& shape = graph.values[static_cast<std::size_t>(node.inputs[0])].shape;
  return all_are("pads", 0) && all_are("dilations", 1) && node.integer("ceil_mode", 0) == 0 &&
         node.text("auto_pad", "NOTSET") == "NOTSET" && shape.size() == 4 &&
         shape[2] * shape[3] < std::numeric_limits<std::int32_t>::max();
}

bool is_for_kernel(const FusedNode& node, const Fused& x) {
  const at::Tensor& first = x.layout == Layout::apart ? x.each.front() : x.tensor;
  return first.is_cpu() && first.scalar_type() == at::kFloat && first.numel() > 0 &&
         has_close_windows(node.graph, node.node);
}

}  // namespace hfta
