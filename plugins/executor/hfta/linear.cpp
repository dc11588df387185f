#include "linear.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/threshold_backward.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <utility>

#include <trainyard/error.hpp>

#include "kernels/cpu/linear.hpp"

namespace hfta {

namespace kernels = trainyard::kernels;

namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

bool is_for_kernel(const at::Tensor& x, const at::Tensor& weight) {
  return x.is_cpu() && x.scalar_type() == at::kFloat && weight.scalar_type() == at::kFloat && x.numel() > 0;
}

/// Where the numbers of the members begin, so many floats one from the next; those that they share have 0.
template <class T>
struct OfMembers {
  T* data = nullptr;
  std::int64_t stride = 0;
  T* operator[](std::int64_t member) const { return data == nullptr ? nullptr : data + member * stride; }
};
OfMembers<const float> read(const at::Tensor& of, bool shared = false) {
  if (!of.defined()) return {};
  return {of.const_data_ptr<float>(), shared ? 0 : of.stride(0)};
}
OfMembers<float> write(const at::Tensor& of) {
  if (!of.defined()) return {};
  return {of.mutable_data_ptr<float>(), of.stride(0)};
}

/// Calls with each member and memory of its own, on several threads where the work is worth it.
template <class Use>
void each_member(std::int64_t members, const kernels::LinearShape& shape, const Use& use) {
  constexpr std::int64_t products_a_task = 1 << 18;
  const std::int64_t grain = 1 + products_a_task / (shape.rows * shape.in * shape.out);
  at::parallel_for(0, members, grain, [&](std::int64_t begin, std::int64_t end) {
    thread_local std::vector<float> scratch;
    const auto size = static_cast<std::size_t>(kernels::linear_kernels().scratch_floats(shape));
    if (scratch.size() < size) scratch.resize(size);
    for (std::int64_t b = begin; b < end; ++b) use(b, scratch.data());
  });
}

/// A layer of all members.
struct Layer {
  at::Tensor x;             ///< [N, in] where it is shared, else [B, N, in]; without gaps for the kernel
  at::Tensor weight, bias;  ///< [B, out, in], [B, out] or undefined
  bool relu = false;

  bool is_shared() const { return x.dim() == 2; }
  std::int64_t members() const { return weight.size(0); }
  at::Tensor own_x() const {
    return is_shared() ? x.unsqueeze(0).expand({members(), x.size(0), x.size(1)}) : x;
  }
  kernels::LinearShape shape() const {
    return {.rows = x.size(-2), .in = weight.size(2), .out = weight.size(1), .relu = relu};
  }
};

/// Not by at::empty, which fills it where a run is to be deterministic: all of it is written here.
at::Tensor floats(at::IntArrayRef sizes) {
  return at::detail::empty_cpu(sizes, at::TensorOptions(at::kFloat));
}

at::Tensor by_kernel(const Layer& layer) {
  const kernels::LinearShape shape = layer.shape();
  at::Tensor y = floats({layer.members(), shape.rows, shape.out});
  const auto x = read(layer.x, layer.is_shared()), weight = read(layer.weight), bias = read(layer.bias);
  const auto to = write(y);
  each_member(layer.members(), shape, [&](std::int64_t b, float* scratch) {
    kernels::linear_kernels().forward({shape, x[b], weight[b], bias[b], to[b], scratch});
  });
  return y;
}

at::Tensor by_products(const Layer& layer) {
  const at::Tensor x = layer.own_x(), columns = layer.weight.transpose(1, 2);
  const at::Tensor y =
      layer.bias.defined() ? at::baddbmm(layer.bias.unsqueeze(1), x, columns) : at::bmm(x, columns);
  return layer.relu ? at::relu(y) : y;
}

void gather(Gathered& to, const at::Tensor& gradient) {
  to.has_some ? to.gradient.add_(gradient) : to.gradient.copy_(gradient);
  to.has_some = true;
}

class LinearNode final : public torch::autograd::Node {
 public:
  LinearNode(const Layer& layer, const at::Tensor& y, Gathered& weight, Gathered* bias)
      : x_(layer.x, /*is_output=*/false),
        weight_(layer.weight, /*is_output=*/false),
        relu_(layer.relu),
        of_weight_(weight),
        of_bias_(bias) {
    if (relu_) y_ = SavedVariable(y.detach(), /*is_output=*/false);
  }
  std::string name() const override { return "LinearOfMembersBackward"; }
  void release_variables() override {
    x_.reset_data();
    weight_.reset_data();
    y_.reset_data();
  }

  variable_list apply(variable_list&& given) override {
    if (!given.front().defined()) return {at::Tensor()};
    const at::NoGradGuard untracked;
    const Layer layer{.x = x_.unpack(), .weight = weight_.unpack(), .bias = {}, .relu = relu_};
    const at::Tensor y = relu_ ? y_.unpack() : at::Tensor();
    const bool to_x = task_should_compute_output(0);
    const at::Tensor to_members = is_for_kernel(layer.x, layer.weight)
                                      ? by_kernel(layer, y, given.front().contiguous(), to_x)
                                      : by_products(layer, y, given.front(), to_x);
    return {to_x && layer.is_shared() ? to_members.sum(0) : to_members};
  }

 private:
  at::Tensor by_kernel(const Layer& layer, const at::Tensor& y, const at::Tensor& given, bool to_x) const {
    const kernels::LinearShape shape = layer.shape();
    at::Tensor x_gradient;
    if (to_x) x_gradient = floats({layer.members(), shape.rows, shape.in});
    const auto x = read(layer.x, layer.is_shared()), weight = read(layer.weight), from = read(given),
               output = read(y);
    const auto to_input = write(x_gradient), to_weight = write(of_weight_.gradient),
               to_bias = write(of_bias_ != nullptr ? of_bias_->gradient : at::Tensor());
    each_member(layer.members(), shape, [&](std::int64_t b, float* scratch) {
      kernels::linear_kernels().backward({.shape = shape,
                                          .x = x[b],
                                          .weight = weight[b],
                                          .y = output[b],
                                          .given = from[b],
                                          .x_gradient = to_input[b],
                                          .weight_gradient = to_weight[b],
                                          .bias_gradient = to_bias[b],
                                          .adds_weight = of_weight_.has_some,
                                          .adds_bias = of_bias_ != nullptr && of_bias_->has_some,
                                          .scratch = scratch});
    });
    of_weight_.has_some = true;
    if (of_bias_ != nullptr) of_bias_->has_some = true;
    return x_gradient;
  }

  at::Tensor by_products(const Layer& layer, const at::Tensor& y, const at::Tensor& given, bool to_x) const {
    const at::Tensor dz = layer.relu ? at::threshold_backward(given, y, 0) : given;
    gather(of_weight_, at::bmm(dz.transpose(1, 2), layer.own_x()));
    if (of_bias_ != nullptr) gather(*of_bias_, dz.sum(1));
    return to_x ? at::bmm(dz, layer.weight) : at::Tensor();
  }

  SavedVariable x_, weight_, y_;
  bool relu_;
  Gathered& of_weight_;
  Gathered* of_bias_;
};

}  // namespace

at::Tensor linear(const FusedNode& node, const Fused& x, const Fused& weight, const Fused& bias) {
  const bool tracked = at::GradMode::is_enabled();
  Layer layer{.x = x.layout == Layout::shared ? x.tensor : as_members(x, node.members),
              .weight = weight.tensor,
              .bias = bias.tensor,
              .relu = node.relu};
  torch::autograd::edge_list edges;
  if (tracked) edges = torch::autograd::collect_next_edges(layer.x);
  const at::NoGradGuard untracked;
  const bool kernel = is_for_kernel(layer.x, layer.weight);
  if (kernel) layer.x = layer.x.contiguous();
  at::Tensor y = kernel ? by_kernel(layer) : by_products(layer);
  if (!tracked) return y;
  const std::shared_ptr<LinearNode> made(new LinearNode(layer, y, *weight.gathered, bias.gathered),
                                         torch::autograd::deleteNode);
  made->set_next_edges(std::move(edges));
  torch::autograd::set_history(y, made);
  return y;
}

}  // namespace hfta
