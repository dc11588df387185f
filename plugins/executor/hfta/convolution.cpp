#include "convolution.hpp"

#include <ATen/ops/conv1d.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/conv3d.h>

#include <algorithm>
#include <iterator>

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

Fused apart(const ConvolutionShape& s, const Fused& x, const at::Tensor& weight, const Bias& bias) {
  const std::vector<at::Tensor> weights = weight.unbind(0);
  const std::vector<at::Tensor> biases = bias ? bias->unbind(0) : std::vector<at::Tensor>();
  const std::vector<at::Tensor> xs = x.layout == Layout::apart    ? x.each
                                     : x.layout == Layout::shared ? std::vector(weights.size(), x.tensor)
                                                                  : as_members(x, weight.size(0)).unbind(0);
  Fused y{.tensor = {}, .layout = Layout::apart};
  for (std::size_t b = 0; b < weights.size(); ++b)
    y.each.push_back(run(s, xs[b], weights[b], bias ? std::optional(biases[b]) : std::nullopt, s.groups));
  return y;
}

/// Numbers in the larger of input and output of all members.
std::int64_t size_of(const ConvolutionShape& s, const Fused& x, const at::Tensor& weight) {
  const at::Tensor& of = x.layout == Layout::apart ? x.each.front() : x.tensor;
  const std::int64_t dimensions = std::ssize(s.strides);
  std::int64_t positions = of.size(x.layout == Layout::members ? 1 : 0);
  for (std::int64_t i = 1; i <= dimensions; ++i) positions *= of.size(-i);
  return weight.size(0) * positions * std::max(weight.size(1), weight.size(2) * s.groups);
}

}  // namespace

Fused convolve(Convolution way, const ConvolutionShape& shape, const Fused& x, const at::Tensor& weight,
               const Bias& bias) {
  if (way == Convolution::apart) return apart(shape, x, weight, bias);
  const at::Tensor joined = weight.flatten(0, 1);
  const Bias joined_bias = bias ? std::optional(bias->flatten(0, 1)) : std::nullopt;
  if (way == Convolution::wide)
    return {run(shape, x.tensor, joined, joined_bias, shape.groups), Layout::channels};
  return {run(shape, as_channels(x, weight.size(0)), joined, joined_bias, shape.groups * weight.size(0)),
          Layout::channels};
}

Convolution choose_convolution(const ConvolutionShape& shape, const Fused& x, const at::Tensor& weight) {
  constexpr std::int64_t registers = 16, block = 8;  // floats
  constexpr std::int64_t small = 1 << 17, most = 1 << 22;
  const std::int64_t members = weight.size(0), out = weight.size(1), in = weight.size(2);
  if (members == 1) return Convolution::grouped;
  const std::int64_t size = size_of(shape, x, weight);
  if (x.layout == Layout::shared && shape.groups == 1)
    return out % registers != 0 || size <= small * members ? Convolution::wide : Convolution::apart;
  const bool in_blocks = in % block == 0 && (out / shape.groups) % block == 0;
  const bool is_point = weight.numel() == members * out * in;
  const bool is_narrow = std::max(in, out) <= block;
  return in_blocks && !is_point && (is_narrow || size <= most) ? Convolution::grouped : Convolution::apart;
}

}  // namespace hfta
