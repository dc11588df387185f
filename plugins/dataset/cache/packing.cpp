#include "packing.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include <ATen/ops/empty.h>

#include <trainyard/error.hpp>

namespace cache {
namespace {

using trainyard::Codec, trainyard::DataError, trainyard::Sample, trainyard::TensorForm;

/// Names of types as codecs know them; the place of one is its number in a packed tensor.
constexpr std::pair<at::ScalarType, std::string_view> types[] = {
    {at::kByte, "U8"},    {at::kChar, "I8"},  {at::kShort, "I16"}, {at::kInt, "I32"},
    {at::kLong, "I64"},   {at::kHalf, "F16"}, {at::kFloat, "F32"}, {at::kBFloat16, "BF16"},
    {at::kDouble, "F64"}, {at::kBool, "BOOL"}};

std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

/// Returns how many bytes stand ahead of the code of a tensor: whether it is packed, its type, its rank and sizes.
constexpr std::size_t head_length(std::size_t rank) {
  return 3 + rank * sizeof(std::int64_t);
}

at::Tensor packed(const Codec& codec, const at::Tensor& given) {
  const auto type =
      std::ranges::find(types, given.scalar_type(), &std::pair<at::ScalarType, std::string_view>::first);
  if (type == std::end(types))
    throw DataError("codec: a sample has a tensor of type " +
                    std::string(c10::toString(given.scalar_type())) +
                    ", of which codecs know nothing: take the cache without a codec");
  const at::Tensor tensor = given.contiguous();
  const std::span<const std::byte> bytes = bytes_of(tensor);
  const TensorForm form{type->second, tensor.sizes()};
  std::vector<std::byte> code(codec.bound(form, bytes.size()));
  const std::size_t length = codec.encode(form, bytes, code);
  const bool shorter = length < bytes.size();
  const std::span<const std::byte> kept = shorter ? std::span<const std::byte>(code).first(length) : bytes;
  const std::size_t head = head_length(tensor.sizes().size());
  at::Tensor made = at::empty({static_cast<std::int64_t>(head + kept.size())}, at::kByte);
  auto* const to = made.mutable_data_ptr<std::uint8_t>();
  to[0] = shorter ? 1 : 0;
  to[1] = static_cast<std::uint8_t>(type - std::begin(types));
  to[2] = static_cast<std::uint8_t>(tensor.dim());
  std::memcpy(to + 3, tensor.sizes().data(), head - 3);
  std::memcpy(to + head, kept.data(), kept.size());
  return made;
}

at::Tensor unpacked(const Codec& codec, const at::Tensor& packed) {
  const std::span<const std::byte> all = bytes_of(packed);
  const auto at = [&](std::size_t place) { return std::to_integer<std::size_t>(all[place]); };
  if (all.size() < head_length(0) || all.size() < head_length(at(2)) || at(1) >= std::size(types))
    throw DataError("codec: " + std::to_string(all.size()) + " bytes are no packed tensor");
  std::vector<std::int64_t> sizes(at(2));
  const std::size_t head = head_length(sizes.size());
  std::memcpy(sizes.data(), all.data() + 3, head - 3);
  const auto& [type, name] = types[at(1)];
  at::Tensor made = at::empty(sizes, type);
  const std::span<std::byte> to(static_cast<std::byte*>(made.mutable_data_ptr()), made.nbytes());
  const std::span<const std::byte> kept = all.subspan(head);
  if (at(0) != 0)
    codec.decode({name, sizes}, kept, to);
  else if (kept.size() == to.size())
    std::ranges::copy(kept, to.begin());
  else
    throw DataError("codec: a packed tensor has " + std::to_string(kept.size()) + " bytes of " +
                    std::to_string(to.size()));
  return made;
}

}  // namespace

const Codec* Packing::find(std::string_view codec) const {
  const auto found = std::ranges::find(codecs_, codec, &Named::first);
  return found == codecs_.end() ? nullptr : found->second.get();
}

Packing::Bytes Packing::pack(std::span<const std::uint8_t> bytes) const {
  if (codecs_.empty()) return {};
  const Codec& codec = *codecs_.front().second;
  const std::int64_t shape[] = {static_cast<std::int64_t>(bytes.size())};
  const TensorForm form{"U8", shape};
  Bytes code(codec.bound(form, bytes.size()));
  const std::size_t length =
      codec.encode(form, std::as_bytes(bytes), std::as_writable_bytes(std::span(code)));
  if (length >= bytes.size()) return {};
  code.resize(length);
  return code;
}

Packing::Bytes Packing::unpack(std::string_view codec, std::span<const std::uint8_t> code,
                               std::uint64_t length) const {
  const Codec* const found = find(codec);
  if (found == nullptr) throw DataError("the codec \"" + std::string(codec) + "\" is not in `codec`");
  Bytes bytes(length);
  const std::int64_t shape[] = {static_cast<std::int64_t>(length)};
  found->decode({"U8", shape}, std::as_bytes(code), std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

Sample Packing::pack(const Sample& sample) const {
  if (codecs_.empty()) return sample;
  Sample made;
  for (const at::Tensor& tensor : sample) made.push_back(packed(*codecs_.front().second, tensor));
  return made;
}

Sample Packing::unpack(const Sample& packed) const {
  if (codecs_.empty()) return packed;
  Sample made;
  for (const at::Tensor& tensor : packed) made.push_back(unpacked(*codecs_.front().second, tensor));
  return made;
}

}  // namespace cache
