#include "convolution.hpp"

#include <ATen/ops/conv1d.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/conv3d.h>
#include <ATen/ops/stack.h>

namespace hfta {
namespace {

using Bias = std::optional<at::Tensor>;

at::Tensor run(const ConvolutionShape& s, const at::Tensor& x, const at::Tensor& weight, const Bias& bias,
               std::int64_t groups) {
  switch (s.strides.size()) {
    case 1: return at::conv1d(x, weight, bias, s.strides, s.padding, s.dilations, groups);
    case 2: return at::conv2d(x, weight, bias, s.strides, s.padding, s.dilations, groups);
    default: return at::conv3d(x, weight, bias, s.strides, s.padding, s.dilations, groups);
  }
}

at::Tensor apart(const ConvolutionShape& s, const Fused& x, const at::Tensor& weight, const Bias& bias) {
  const std::int64_t members = weight.size(0);
  const std::vector<at::Tensor> weights = weight.unbind(0), xs = as_members(x, members).unbind(0);
  const std::vector<at::Tensor> biases = bias ? bias->unbind(0) : std::vector<at::Tensor>();
  std::vector<at::Tensor> outputs;
  for (std::size_t b = 0; b < weights.size(); ++b)
    outputs.push_back(run(s, xs[b], weights[b], bias ? std::optional(biases[b]) : std::nullopt, s.groups));
  return at::stack(outputs);
}

}  // namespace

Fused convolve(Convolution way, const ConvolutionShape& shape, const Fused& x, const at::Tensor& weight,
               const Bias& bias) {
  if (way == Convolution::apart) return {apart(shape, x, weight, bias), Layout::members};
  const at::Tensor joined = weight.flatten(0, 1);
  const Bias joined_bias = bias ? std::optional(bias->flatten(0, 1)) : std::nullopt;
  if (way == Convolution::wide)
    return {run(shape, x.tensor, joined, joined_bias, shape.groups), Layout::channels};
  return {run(shape, as_channels(x, weight.size(0)), joined, joined_bias, shape.groups * weight.size(0)),
          Layout::channels};
}

Convolution choose_convolution(const ConvolutionShape& shape, const Fused& x, const at::Tensor& weight) {
  if (weight.size(0) == 1) return Convolution::grouped;
  if (x.layout == Layout::shared && shape.groups == 1) return Convolution::wide;
  return Convolution::grouped;
}

}  // namespace hfta
