// A tensor in 8 bits: a code for each value, and a scale for each block of 256 (kernels/cpu/byte_map.hpp). The paper has
// blocks of 2,048; smaller ones leave fewer values beside an outlier, for 1.6 % more bytes.
#pragma once

#include <algorithm>
#include <cfloat>
#include <type_traits>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/bucketize.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/index.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "kernels/cpu/byte_map.hpp"

namespace optimizers {

constexpr std::int64_t block_values = 256, blocks_a_task = 64;

struct ByteBlocks {
  at::Tensor codes;   ///< int8 in a map with a sign, else uint8, in the shape of the tensor
  at::Tensor scales;  ///< float, one a block
};

inline std::int64_t blocks_of(std::int64_t values) {
  return (values + block_values - 1) / block_values;
}

/// Returns zeros.
inline ByteBlocks make_byte_blocks(const at::Tensor& like, bool has_sign) {
  const at::TensorOptions on = at::TensorOptions().device(like.device());
  return {at::zeros(like.sizes(), on.dtype(has_sign ? at::kChar : at::kByte)),
          at::zeros({blocks_of(like.numel())}, on.dtype(at::kFloat))};
}

/// Calls with the number of each block, the place of its first value and how many it has, on several threads.
template <class Use>
void each_block(std::int64_t values, const Use& use) {
  at::parallel_for(0, blocks_of(values), blocks_a_task, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t block = begin; block < end; ++block) {
      const std::int64_t at = block * block_values;
      use(block, at, std::min(block_values, values - at));
    }
  });
}

inline std::uint8_t* bytes_of(const at::Tensor& codes) {
  return static_cast<std::uint8_t*>(codes.mutable_data_ptr());
}

/// Replaces what `to` holds, by ATen, as devices need it: to the same bits as the kernel.
inline void pack_by_aten(const at::Tensor& values, const ByteBlocks& to,
                         const trainyard::kernels::ByteMap& map) {
  const std::int64_t count = values.numel();
  const at::Tensor flat = values.flatten().to(at::kFloat);
  const at::Tensor blocks =
      at::constant_pad_nd(flat, {0, to.scales.numel() * block_values - count}).view({-1, block_values});
  const at::Tensor largest = blocks.abs().amax(1);
  to.scales.copy_(largest.masked_fill(largest < FLT_MIN, 0.0));
  const at::Tensor scales = to.scales.unsqueeze(1);
  const at::Tensor quotients = at::where(scales == 0, 0.0, blocks / scales);
  const at::Tensor sizes = quotients.abs();
  const auto table = [&](const auto* numbers, at::ScalarType type) {
    using Number = std::remove_const_t<std::remove_pointer_t<decltype(numbers)>>;
    return at::from_blob(const_cast<Number*>(numbers), {trainyard::kernels::ByteMap::decades}, type)
        .clone()
        .to(values.device());
  };
  const at::Tensor above = table(map.above, at::kFloat);
  const at::Tensor decade = at::bucketize(sizes, above.slice(0, 1));
  const auto of_decade = [&](const at::Tensor& numbers) { return numbers.index({decade}); };
  const at::Tensor place =
      ((sizes - of_decade(table(map.lower, at::kFloat))) * of_decade(table(map.per_part, at::kFloat)))
          .to(at::kInt);
  at::Tensor codes =
      at::minimum(place, of_decade(table(map.last, at::kInt))) + of_decade(table(map.code, at::kInt));
  codes = at::where(sizes > above[0], codes, 0);
  if (map.has_sign) codes = at::where(quotients < 0, -codes, codes);
  to.codes.copy_(codes.flatten().narrow(0, 0, count).view(values.sizes()));
}

inline void pack(const at::Tensor& values, const ByteBlocks& to, const trainyard::kernels::ByteMap& map) {
  if (!values.is_cpu()) return pack_by_aten(values, to, map);
  const at::Tensor floats = values.to(at::kFloat).contiguous();
  const auto* const from = floats.const_data_ptr<float>();
  std::uint8_t* const codes = bytes_of(to.codes);
  auto* const scales = to.scales.mutable_data_ptr<float>();
  each_block(values.numel(), [&](std::int64_t block, std::int64_t at, std::int64_t count) {
    scales[block] = trainyard::kernels::byte_map_kernels().pack(codes + at, from + at, count, map);
  });
}

inline at::Tensor unpacked_by_aten(const ByteBlocks& from, const trainyard::kernels::ByteMap& map) {
  const at::Tensor table =
      at::from_blob(const_cast<float*>(map.value), {256}, at::kFloat).clone().to(from.codes.device());
  const std::int64_t count = from.codes.numel();
  const at::Tensor scales = from.scales.unsqueeze(1).expand({-1, block_values}).flatten().narrow(0, 0, count);
  const at::Tensor places = from.codes.flatten().view(at::kByte).to(at::kLong);
  return (table.index_select(0, places) * scales).view(from.codes.sizes());
}

/// Returns floats.
inline at::Tensor unpacked(const ByteBlocks& from, const trainyard::kernels::ByteMap& map) {
  if (!from.codes.is_cpu()) return unpacked_by_aten(from, map);
  const at::Tensor floats = at::empty(from.codes.sizes(), at::TensorOptions(at::kFloat));
  auto* const to = floats.mutable_data_ptr<float>();
  const std::uint8_t* const codes = bytes_of(from.codes);
  const auto* const scales = from.scales.const_data_ptr<float>();
  each_block(floats.numel(), [&](std::int64_t block, std::int64_t at, std::int64_t count) {
    trainyard::kernels::byte_map_kernels().unpack(to + at, codes + at, scales[block], count, map);
  });
  return floats;
}

}  // namespace optimizers
