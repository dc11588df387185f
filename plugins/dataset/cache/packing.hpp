// Packs what a cache keeps by a codec, without loss.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <trainyard/codec.hpp>
#include <trainyard/staged_dataset.hpp>

namespace cache {

/// The first codec packs; what any of them has packed can be read. Any thread.
class Packing {
 public:
  using Bytes = std::vector<std::uint8_t>;
  using Named = std::pair<std::string, std::unique_ptr<trainyard::Codec>>;

  /// Takes codecs with their names. Without any nothing is packed.
  explicit Packing(std::vector<Named> codecs = {}) : codecs_(std::move(codecs)) {}

  /// Returns the name of the codec that packs; empty where nothing is packed.
  std::string name() const { return codecs_.empty() ? std::string() : codecs_.front().first; }
  bool reads(std::string_view codec) const { return find(codec) != nullptr; }

  /// Returns the code of bytes; nothing where it is no shorter.
  Bytes pack(std::span<const std::uint8_t> bytes) const;
  /// Throws DataError for what is no code of `length` bytes, or of a codec that is not there.
  Bytes unpack(std::string_view codec, std::span<const std::uint8_t> code, std::uint64_t length) const;

  /// Returns a sample that takes less memory, of which `unpack` makes the sample. Without a codec both return the same
  /// tensors.
  trainyard::Sample pack(const trainyard::Sample& sample) const;
  trainyard::Sample unpack(const trainyard::Sample& packed) const;

 private:
  const trainyard::Codec* find(std::string_view codec) const;

  std::vector<Named> codecs_;
};

}  // namespace cache
