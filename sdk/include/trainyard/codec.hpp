// codec/1: stores the bytes of a tensor in fewer bytes. It is a part: checkpointers, caches and transforms have
// it among their options (PluginList<Codec>), and no table of the run file is its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <trainyard/contract.hpp>
#include <trainyard/plugin.hpp>

TRAINYARD_CONTRACT("codec.hpp");

namespace trainyard {

/// Tells how to read the bytes of a tensor, which are contiguous, in row-major order and little-endian.
struct TensorForm {
  std::string_view dtype;  ///< as safetensors has it: "F32", "BF16", "I8"
  std::span<const std::int64_t> shape;
};

/// Works on bytes, without LibTorch, as the commands that read checkpoints have none. All calls are for any
/// thread, several at once.
class Codec : public Plugin {
 public:
  static constexpr Kind kind{"codec", 1};

  /// Returns the bytes that `encode` needs at most for a tensor of `size` bytes.
  virtual std::size_t bound(const TensorForm& form, std::size_t size) const = 0;

  /// Writes the code of `bytes` to `code`, which has room for bound(). Returns its length in bytes. Equal
  /// bytes have equal codes, and what `decode` makes of a code is equal to the bit.
  virtual std::size_t encode(const TensorForm& form, std::span<const std::byte> bytes,
                             std::span<std::byte> code) const = 0;

  /// Writes what a code stands for to `bytes`, all of it. Throws DataError for a code that no tensor of this
  /// form and size has, whatever its bytes are; it reads nothing beyond the code.
  virtual void decode(const TensorForm& form, std::span<const std::byte> code,
                      std::span<std::byte> bytes) const = 0;
};

}  // namespace trainyard
