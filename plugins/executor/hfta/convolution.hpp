// The convolutions of all members of an array, in one of several ways.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "fused.hpp"

namespace hfta {

enum class Convolution : std::uint8_t {
  grouped,  ///< one of B times as many groups
  wide,     ///< of an input that all members share: one of B times as many outputs
  apart,    ///< B of them
};

struct ConvolutionShape {
  std::vector<std::int64_t> strides, dilations, padding;
  std::int64_t groups = 1;
};

/// `weight` [B, out, in / groups, ...], `bias` [B, out] or none. Only an input that is shared can be wide.
Fused convolve(Convolution way, const ConvolutionShape& shape, const Fused& x, const at::Tensor& weight,
               const std::optional<at::Tensor>& bias);

/// The fastest of them, by measured times (tools/bench/hfta.cpp). Always the same for the same sizes, so that a run can
/// be resumed to the bit.
Convolution choose_convolution(const ConvolutionShape& shape, const Fused& x, const at::Tensor& weight);

}  // namespace hfta
