// Weights in two parts: the upper 16 bits of each float, which are a bfloat16, and the lower 16. Passes read
// the first alone, half the bytes; an optimizer updates the float that both are, without a second copy of it.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <trainyard/contract.hpp>

TRAINYARD_CONTRACT("mixins/halves.hpp");

namespace trainyard {

/// A parameter of bfloat16 and a buffer of int16 of its shape, both contiguous, on the CPU.
struct Halves {
  std::string name;  ///< name of the parameter
  at::Tensor upper, lower;
};

/// A network implements it; found by dynamic_cast. Gradients of such parameters are float. Loop thread.
class HoldsHalves {
 public:
  virtual ~HoldsHalves() = default;

  /// Returns handles that stay the same until the network adopts others; none where all weights are whole.
  virtual std::vector<Halves> halves() const = 0;
};

inline float joined(std::uint16_t upper, std::uint16_t lower) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(upper) << 16 | lower);
}
inline std::uint16_t upper_of(float number) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(number) >> 16);
}
inline std::uint16_t lower_of(float number) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(number));
}

inline std::uint16_t* bits_of(const at::Tensor& half) {
  return static_cast<std::uint16_t*>(half.mutable_data_ptr());
}

/// Returns the float weights, a copy.
inline at::Tensor joined(const Halves& of) {
  at::Tensor whole = at::empty(of.upper.sizes(), at::kFloat);
  auto* const to = whole.mutable_data_ptr<float>();
  const std::uint16_t* const upper = bits_of(of.upper);
  const std::uint16_t* const lower = bits_of(of.lower);
  for (std::int64_t i = 0; i < whole.numel(); ++i) to[i] = joined(upper[i], lower[i]);
  return whole;
}

}  // namespace trainyard
