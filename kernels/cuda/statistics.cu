#include "kernels/cuda/statistics.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <vector>

#include "kernels/cuda/buffer.hpp"
#include "kernels/cuda/demand.hpp"
#include "kernels/cuda/last_launch.hpp"
#include "kernels/cuda/tally.hpp"

namespace trainyard::kernels::cuda {
namespace {

constexpr int warp = 32;
constexpr int fold_threads = 256;

/// Returns the value of the lane `distance` further on; every lane of the warp takes part.
template <class T>
__device__ T from_behind(const T& value, int distance) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(unsigned) == 0);
  constexpr int words = sizeof(T) / sizeof(unsigned);
  unsigned bits[words];
  memcpy(bits, &value, sizeof(T));
#pragma unroll
  for (int i = 0; i < words; ++i) bits[i] = __shfl_down_sync(0xffffffffu, bits[i], distance);
  T theirs;
  memcpy(&theirs, bits, sizeof(T));
  return theirs;
}

/// Computes the numbers of a chunk in its first thread; the threads' sums are merged in a fixed order.
template <class T>
__device__ void reduce(const Chunk& chunk, Numbers* result) {
  using Sums = Tally<ValueOf<T>>;
  constexpr int warps = threads_of_chunk / warp;
  alignas(Sums) __shared__ unsigned char shared[warps * sizeof(Sums)];
  Sums* const of_warps = reinterpret_cast<Sums*>(shared);

  __builtin_assume(__isGlobal(chunk.data));
  const T* const data = static_cast<const T*>(chunk.data);
  const double shift = shift_of(data);
  const int thread = static_cast<int>(threadIdx.x);
  Sums sums = tally_of(data, chunk.count, thread, shift);
  // Lanes whose partner is beyond the warp compute sums that are not used.
  for (int distance = warp / 2; distance > 0; distance /= 2) sums.merge(from_behind(sums, distance));
  if (thread % warp == 0) of_warps[thread / warp] = sums;
  __syncthreads();
  if (thread != 0) return;
  for (int i = 1; i < warps; ++i) sums.merge(of_warps[i]);
  *result = sums.numbers(chunk.count, shift);
}

__global__ void __launch_bounds__(threads_of_chunk, 3) reduce_chunks(const Chunk* chunks, Numbers* parts) {
  const Chunk chunk = chunks[blockIdx.x];
  Numbers* const result = parts + blockIdx.x;
  switch (chunk.dtype) {
    case Dtype::float32: reduce<float>(chunk, result); break;
    case Dtype::float64: reduce<double>(chunk, result); break;
    case Dtype::float16: reduce<__half>(chunk, result); break;
    case Dtype::bfloat16: reduce<__nv_bfloat16>(chunk, result); break;
  }
}

/// Merges the chunks of each tensor: each thread merges consecutive ones, then neighbours merge.
__global__ void __launch_bounds__(fold_threads)
    fold(const std::int32_t* firsts, const Numbers* parts, Numbers* results) {
  alignas(Numbers) __shared__ unsigned char shared[fold_threads * sizeof(Numbers)];
  Numbers* const of_threads = reinterpret_cast<Numbers*>(shared);
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t begin = firsts[blockIdx.x], end = firsts[blockIdx.x + 1];
  const std::int64_t share = (end - begin + fold_threads - 1) / fold_threads;
  const std::int64_t first = begin + thread * share;
  const std::int64_t last = first + share < end ? first + share : end;
  Numbers numbers;
  for (std::int64_t i = first; i < last; ++i) append(numbers, parts[i]);
  of_threads[thread] = numbers;
  for (int distance = 1; distance < fold_threads; distance *= 2) {
    __syncthreads();
    if (thread % (2 * distance) == 0) append(of_threads[thread], of_threads[thread + distance]);
  }
  if (thread == 0) results[blockIdx.x] = finished(of_threads[0]);
}

template <class T>
std::size_t bytes_of(const std::vector<T>& values) {
  return values.size() * sizeof(T);
}

}  // namespace

struct MultiStatistics::State {
  /// The table, the numbers of the chunks, and those of the tensors, on the device; here the numbers of the
  /// tensors, then the table.
  DeviceBuffer there;
  PinnedBuffer here;
  std::span<const Numbers> results;
  LastLaunch last;

  void launch(std::span<const View> tensors, cudaStream_t stream) {
    const Partition parts = partition(tensors);
    last.demand_device("statistics");
    last.wait();
    results = {};
    if (tensors.empty()) return;

    const std::size_t numbers = tensors.size() * sizeof(Numbers);
    const std::size_t chunks = bytes_of(parts.chunks), firsts = bytes_of(parts.firsts);
    const std::size_t table = (chunks + firsts + alignof(Chunk) - 1) / alignof(Chunk) * alignof(Chunk);
    unsigned char* const pinned = here.at_least(numbers + table);
    unsigned char* const memory = there.at_least(table + parts.chunks.size() * sizeof(Numbers) + numbers);
    auto* const of_chunks = reinterpret_cast<Numbers*>(memory + table);
    auto* const of_tensors = of_chunks + parts.chunks.size();
    std::copy(parts.chunks.begin(), parts.chunks.end(), reinterpret_cast<Chunk*>(pinned + numbers));
    std::copy(parts.firsts.begin(), parts.firsts.end(),
              reinterpret_cast<std::int32_t*>(pinned + numbers + chunks));

    demand(cudaMemcpyAsync(memory, pinned + numbers, chunks + firsts, cudaMemcpyHostToDevice, stream));
    if (!parts.chunks.empty()) {
      reduce_chunks<<<static_cast<unsigned>(parts.chunks.size()), threads_of_chunk, 0, stream>>>(
          reinterpret_cast<const Chunk*>(memory), of_chunks);
      demand(cudaGetLastError());
    }
    fold<<<static_cast<unsigned>(tensors.size()), fold_threads, 0, stream>>>(
        reinterpret_cast<const std::int32_t*>(memory + chunks), of_chunks, of_tensors);
    demand(cudaGetLastError());
    demand(cudaMemcpyAsync(pinned, of_tensors, numbers, cudaMemcpyDeviceToHost, stream));
    last.record(stream);
    results = {reinterpret_cast<const Numbers*>(pinned), tensors.size()};
  }
};

MultiStatistics::MultiStatistics() : state_(new State) {}
MultiStatistics::~MultiStatistics() = default;

void MultiStatistics::launch(std::span<const View> tensors, void* stream) {
  state_->launch(tensors, static_cast<cudaStream_t>(stream));
}

bool MultiStatistics::ready() const {
  return state_->results.empty() || state_->last.ready();
}

std::span<const Numbers> MultiStatistics::results() const {
  if (!state_->results.empty()) state_->last.wait();
  return state_->results;
}

}  // namespace trainyard::kernels::cuda
