// Splits a list of tensors into chunks, one for each thread block of statistics.cu.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/cuda/statistics.hpp"

namespace trainyard::kernels::cuda {

constexpr std::int32_t chunk_size = 1 << 15;  ///< elements; enough to make the cost of merging sums small
constexpr std::int32_t threads_of_chunk = 256;

/// Consecutive elements of one tensor.
struct alignas(16) Chunk {
  const void* data = nullptr;
  std::int32_t count = 0;  ///< `chunk_size`, less in the last one of a tensor
  Dtype dtype = Dtype::float32;
};

struct Partition {
  std::vector<Chunk> chunks;         ///< in the order of tensors and of elements; none for an empty tensor
  std::vector<std::int32_t> firsts;  ///< the first chunk of each tensor, then their number
};

inline std::int64_t size_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::float32: return 4;
    case Dtype::float64: return 8;
    default: return 2;
  }
}

/// Returns the chunks of the tensors. Throws std::invalid_argument for invalid tensors.
inline Partition partition(std::span<const View> tensors) {
  Partition parts;
  parts.firsts.reserve(tensors.size() + 1);
  const auto refuse = [&](const std::string& what) {
    throw std::invalid_argument("statistics: tensor " + std::to_string(parts.firsts.size() - 1) + " " + what);
  };
  for (const View& tensor : tensors) {
    parts.firsts.push_back(static_cast<std::int32_t>(parts.chunks.size()));
    const std::int64_t size = size_of(tensor.dtype);
    const auto* const data = static_cast<const unsigned char*>(tensor.data);
    if (tensor.count < 0) refuse("has " + std::to_string(tensor.count) + " elements, expected none or more");
    if (tensor.count > 0 && data == nullptr) refuse("has elements, and no data");
    if (reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(size) != 0)
      refuse("is not aligned to its elements of " + std::to_string(size) + " bytes");
    const std::int64_t most = std::numeric_limits<std::int32_t>::max();
    if (tensor.count / chunk_size >= most - static_cast<std::int64_t>(parts.chunks.size()))
      refuse("is one too many: all together have more chunks than a grid has blocks");
    for (std::int64_t at = 0; at < tensor.count; at += chunk_size)
      parts.chunks.push_back(
          {data + at * size, static_cast<std::int32_t>(std::min<std::int64_t>(chunk_size, tensor.count - at)),
           tensor.dtype});
  }
  parts.firsts.push_back(static_cast<std::int32_t>(parts.chunks.size()));
  return parts;
}

}  // namespace trainyard::kernels::cuda
