// A tensor in 8 bits a value: floats are quantised, which is lossy, and the codes are packed by a codec, which is not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/codec.hpp>

#include "block.hpp"

namespace packed_activations {

using trainyard::Codec;

enum class Scheme : std::uint8_t { affine, absmax };

/// How values become codes: each block of neighbours in memory has its own scale.
struct Quantiser {
  Scheme scheme = Scheme::affine;
  std::int64_t block = 4096;
};

/// Values that are packed in one piece are about so many: a whole number of blocks.
constexpr std::int64_t piece_values = 1 << 17;

class PackedTensor {
 public:
  /// Takes a contiguous tensor of floating point. With `keeps_positive` a value above 0 stays above 0, and no other comes
  /// to lie there. A block with an infinity or NaN comes back as NaN. Without a codec the codes stay as they are.
  PackedTensor(const at::Tensor& values, const Quantiser& quantiser, bool keeps_positive, const Codec* codec);

  /// Returns new values, contiguous and flat. Any thread.
  at::Tensor values() const;

  /// Returns the bytes that it takes, scales and lengths included.
  std::size_t bytes() const;

 private:
  struct Piece {
    Block bytes;
    bool packed = false;  ///< by the codec; else the codes themselves, as it made them no shorter
  };

  std::int64_t piece_size() const;
  std::size_t bound() const;
  void encode(std::int64_t piece, const float* values, bool keeps_positive, std::span<std::byte> codes);
  void pack(Piece& piece, std::span<const std::byte> codes, std::span<std::byte> code) const;
  void decode(std::int64_t piece, float* values, std::span<std::byte> room) const;
  trainyard::TensorForm form(std::span<const std::int64_t> shape) const;

  Quantiser quantiser_;
  const Codec* codec_;
  at::TensorOptions options_;
  std::int64_t count_;
  std::vector<Piece> pieces_;
  std::vector<float> scales_;        ///< of each block
  std::vector<std::uint8_t> zeros_;  ///< code of 0 of each block; empty where it is 0 in all of them
};

}  // namespace packed_activations
