#include "packed.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include "kernels/cpu/byte_codes.hpp"

namespace packed_activations {
namespace {

using trainyard::kernels::ByteRange, trainyard::kernels::byte_code_kernels;

constexpr float byte_steps = 255.0f, sign_steps = 127.0f;

/// The smallest scale whose multiples the type can hold as normal numbers, so that no code above the zero comes back as 0.
float least_scale(at::ScalarType dtype) {
  return dtype == at::kHalf ? 6.103515625e-5f : std::numeric_limits<float>::min();
}

std::size_t index(std::int64_t number) {
  return static_cast<std::size_t>(number);
}

/// Memory that is written before it is read.
class Room {
 public:
  explicit Room(std::size_t size) : bytes_(std::make_unique_for_overwrite<std::byte[]>(size)), size_(size) {}
  std::span<std::byte> all() const { return {bytes_.get(), size_}; }
  std::span<std::byte> first(std::size_t count) const { return all().first(count); }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  std::size_t size_;
};

}  // namespace

PackedTensor::PackedTensor(const at::Tensor& values, const Quantiser& quantiser, bool keeps_positive,
                           const Codec* codec)
    : quantiser_(quantiser), codec_(codec), options_(values.options()), count_(values.numel()) {
  const at::Tensor floats = values.to(at::kFloat);
  const std::int64_t size = piece_size(), pieces = (count_ + size - 1) / size;
  const std::int64_t blocks = (count_ + quantiser.block - 1) / quantiser.block;
  pieces_.resize(index(pieces));
  scales_.resize(index(blocks));
  if (quantiser.scheme == Scheme::affine) zeros_.resize(index(blocks));
  const float* const from = floats.const_data_ptr<float>();
  at::parallel_for(0, pieces, 1, [&](std::int64_t begin, std::int64_t end) {
    const Room codes(codec_ == nullptr ? 0 : index(size)), code(codec_ == nullptr ? 0 : bound());
    for (std::int64_t i = begin; i < end; ++i) {
      Piece& piece = pieces_[index(i)];
      const std::size_t length = index(std::min(size, count_ - i * size));
      if (codec_ == nullptr) {
        piece.bytes = Block(length);
        encode(i, from, keeps_positive, piece.bytes.all());
        continue;
      }
      encode(i, from, keeps_positive, codes.first(length));
      pack(piece, codes.first(length), code.all());
    }
  });
  if (std::ranges::count(zeros_, 0) == blocks) zeros_ = {};
}

at::Tensor PackedTensor::values() const {
  const at::Tensor floats = at::empty({count_}, options_.dtype(at::kFloat));
  float* const to = floats.mutable_data_ptr<float>();
  at::parallel_for(0, static_cast<std::int64_t>(pieces_.size()), 1,
                   [&](std::int64_t begin, std::int64_t end) {
                     const Room codes(codec_ == nullptr ? 0 : index(piece_size()));
                     for (std::int64_t i = begin; i < end; ++i) decode(i, to, codes.all());
                   });
  return floats.to(options_.dtype().toScalarType());
}

std::size_t PackedTensor::bytes() const {
  std::size_t total = scales_.size() * sizeof(float) + zeros_.size() + pieces_.size() * sizeof(Piece);
  for (const Piece& piece : pieces_) total += piece.bytes.bytes();
  return total;
}

/// Returns what the code of a piece needs at most.
std::size_t PackedTensor::bound() const {
  const std::int64_t shape[] = {piece_size()};
  return codec_->bound(form(shape), index(piece_size()));
}

std::int64_t PackedTensor::piece_size() const {
  return std::max<std::int64_t>(1, piece_values / quantiser_.block) * quantiser_.block;
}

/// Writes the codes of a piece, and the scales of its blocks.
void PackedTensor::encode(std::int64_t piece, const float* values, bool keeps_positive,
                          std::span<std::byte> codes) {
  const auto& kernels = byte_code_kernels();
  const std::int64_t first = piece * piece_size(), count = static_cast<std::int64_t>(codes.size());
  for (std::int64_t at = 0; at < count; at += quantiser_.block) {
    const std::int64_t length = std::min(quantiser_.block, count - at);
    const float* const x = values + first + at;
    const std::size_t block = index((first + at) / quantiser_.block);
    const ByteRange range = kernels.range(x, length);
    if (!range.finite) {
      scales_[block] = std::numeric_limits<float>::quiet_NaN();
      std::fill_n(codes.begin() + at, length, std::byte{});
      continue;
    }
    const bool affine = quantiser_.scheme == Scheme::affine;
    float scale = affine ? range.most / byte_steps - range.least / byte_steps
                         : std::max(range.most, -range.least) / sign_steps;
    if (range.most > range.least) scale = std::max(scale, least_scale(options_.dtype().toScalarType()));
    scales_[block] = scale;
    const float inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    if (!affine) {
      kernels.signed_codes(reinterpret_cast<std::int8_t*>(codes.data() + at), x, length, inverse,
                           keeps_positive);
      continue;
    }
    const float most_zero = range.most > 0.0f ? byte_steps - 1.0f : byte_steps;
    const float zero = std::min(std::nearbyint(-range.least * inverse), most_zero);
    zeros_[block] = static_cast<std::uint8_t>(zero);
    kernels.unsigned_codes(reinterpret_cast<std::uint8_t*>(codes.data() + at), x, length, inverse,
                           zeros_[block], keeps_positive);
  }
}

void PackedTensor::pack(Piece& piece, std::span<const std::byte> codes, std::span<std::byte> code) const {
  const std::int64_t shape[] = {static_cast<std::int64_t>(codes.size())};
  const std::size_t length = codec_->encode(form(shape), codes, code);
  piece.packed = length < codes.size();
  const std::span<const std::byte> kept = piece.packed ? code.first(length) : codes;
  piece.bytes = Block(kept.size());
  std::ranges::copy(kept, piece.bytes.all().begin());
}

void PackedTensor::decode(std::int64_t number, float* values, std::span<std::byte> room) const {
  const auto& kernels = byte_code_kernels();
  const Piece& piece = pieces_[index(number)];
  const std::int64_t first = number * piece_size(), count = std::min(piece_size(), count_ - first);
  const std::byte* codes = piece.bytes.all().data();
  if (piece.packed) {
    const std::int64_t shape[] = {count};
    codec_->decode(form(shape), piece.bytes.all(), room.first(index(count)));
    codes = room.data();
  }
  for (std::int64_t at = 0; at < count; at += quantiser_.block) {
    const std::int64_t length = std::min(quantiser_.block, count - at);
    const std::size_t block = index((first + at) / quantiser_.block);
    if (quantiser_.scheme == Scheme::absmax)
      kernels.signed_values(values + first + at, reinterpret_cast<const std::int8_t*>(codes + at), length,
                            scales_[block]);
    else
      kernels.unsigned_values(values + first + at, reinterpret_cast<const std::uint8_t*>(codes + at), length,
                              scales_[block], zeros_.empty() ? 0 : zeros_[block]);
  }
}

trainyard::TensorForm PackedTensor::form(std::span<const std::int64_t> shape) const {
  return {quantiser_.scheme == Scheme::absmax ? "I8" : "U8", shape};
}

}  // namespace packed_activations
