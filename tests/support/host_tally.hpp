// What the thread blocks of kernels/cuda/statistics.cu do, by loops.
#pragma once

#include <span>
#include <vector>

#include "kernels/cuda/tally.hpp"

namespace trainyard::test {

template <class T>
kernels::cuda::Numbers tallied(const T* data, std::int64_t count, kernels::cuda::Dtype dtype,
                               bool whole = true) {
  using namespace kernels::cuda;
  Numbers all;
  const View view{data, count, dtype};
  for (const Chunk& chunk : partition(std::span(&view, 1)).chunks) {
    const auto* const first = static_cast<const T*>(chunk.data);
    const double shift = shift_of(first);
    std::vector<Tally<ValueOf<T>>> lanes(threads_of_chunk);
    for (std::int32_t thread = 0; thread < threads_of_chunk; ++thread)
      lanes[static_cast<std::size_t>(thread)] = tally_of(first, chunk.count, thread, shift);
    for (std::size_t distance = 16; distance > 0; distance /= 2)
      for (std::size_t i = 0; i < lanes.size(); ++i)
        if (i % 32 < distance) lanes[i].merge(lanes[i + distance]);
    for (std::size_t i = 32; i < lanes.size(); i += 32) lanes[0].merge(lanes[i]);
    append(all, lanes[0].numbers(chunk.count, shift));
  }
  return whole ? finished(all) : all;
}

}  // namespace trainyard::test
