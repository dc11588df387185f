#include "kernels/cuda/top_k.hpp"

#include <cuda_runtime.h>

#include <algorithm>
#include <cub/cub.cuh>
#include <stdexcept>
#include <string>

#include "kernels/bisection.hpp"
#include "kernels/cuda/buffer.hpp"
#include "kernels/cuda/demand.hpp"
#include "kernels/cuda/last_launch.hpp"

namespace trainyard::kernels::cuda {
namespace {

constexpr int warp = 32, threads = 256, warps = threads / warp;
constexpr unsigned whole_warp = 0xffffffffu;
/// Blocks in passes that count: enough for any device, and the same on all, as sums are merged by block.
constexpr int most_blocks = 1024;
constexpr int ahead = 8;  // elements that a thread loads at once
/// Each thread block gathers a tile, each warp consecutive elements of it.
constexpr int rounds = 16, of_warp = rounds * warp, tile = of_warp * warps;
static_assert(tile == 4096);
constexpr int replicas = 4;  // copies of each bin, as lanes that meet at one wait for each other

struct Task {
  Selection how;
  std::int64_t count, k;
  std::uint64_t random;
};

/// The state of a selection in progress, in device memory.
struct Search {
  Task task;
  bool decided;  ///< true if no counting is needed
  int passes;
  std::int64_t non_finite;
  Bounds bounds;
  Bisection bisection;
  RadixSearch radix;
  Cut cut;
  Selected selected;
  unsigned arrived;                                ///< blocks of a pass that are done; 0 between passes
  unsigned long long counts[1 + most_thresholds];  ///< 0 between passes
  unsigned bins[most_bins];                        ///< 0 between passes
  Summary parts[most_blocks];
};

unsigned blocks_for(std::int64_t count) {
  constexpr std::int64_t each = threads * ahead;
  return static_cast<unsigned>(std::clamp<std::int64_t>((count + each - 1) / each, 1, most_blocks));
}

/// Calls `use` with the keys of all elements, each on one thread of the grid.
template <class Use>
__device__ void each_key(const float* x, std::int64_t count, const Use& use) {
  constexpr std::int64_t each = threads * ahead;
  for (std::int64_t first = blockIdx.x * each; first < count; first += gridDim.x * each) {
    const float* const from = x + first + threadIdx.x;
    if (first + each <= count) {
      float values[ahead];
#pragma unroll
      for (int i = 0; i < ahead; ++i) values[i] = from[i * threads];
#pragma unroll
      for (int i = 0; i < ahead; ++i) use(key_of(values[i]));
    } else {
      for (std::int64_t at = first + threadIdx.x; at < count; at += threads) use(key_of(x[at]));
    }
  }
}

/// Returns whether this block is the last of a pass, which may then read the results of the other blocks,
/// though not from its L1 cache. All threads of a block call it.
__device__ bool last_block(Search* search) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(&search->arrived, 1u) == gridDim.x - 1;
  __syncthreads();
  if (last) {
    __threadfence();
    if (threadIdx.x == 0) search->arrived = 0;
  }
  return last;
}

// --- before a search

__global__ void __launch_bounds__(threads) start(Search* search, Task task) {
  for (int bin = threadIdx.x; bin < most_bins; bin += threads) search->bins[bin] = 0;
  if (threadIdx.x <= most_thresholds) search->counts[threadIdx.x] = 0;
  if (threadIdx.x != 0) return;
  search->task = task;
  search->decided = false;
  search->passes = 0;
  search->radix = {};
  search->arrived = 0;
}

__device__ Summary with(const Summary& a, const Summary& b) {
  return {a.sum + b.sum, min(a.smallest, b.smallest), max(a.largest, b.largest), a.non_finite + b.non_finite};
}

/// Merges the threads' parts in a fixed order; the first thread gets the result.
__device__ Summary of_block(const Summary& part) {
  __shared__ unsigned char memory[threads * sizeof(Summary)];
  Summary* const shared = reinterpret_cast<Summary*>(memory);
  shared[threadIdx.x] = part;
  for (int distance = threads / 2; distance > 0; distance /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < distance)
      shared[threadIdx.x] = with(shared[threadIdx.x], shared[threadIdx.x + distance]);
  }
  __syncthreads();
  return shared[0];
}

__device__ Summary read_part(const Summary* part) {
  return {__ldcg(&part->sum), __ldcg(&part->smallest), __ldcg(&part->largest),
          static_cast<std::int64_t>(__ldcg(reinterpret_cast<const long long*>(&part->non_finite)))};
}

/// Passes over the data once and begins the search.
__global__ void __launch_bounds__(threads) summarize(const float* x, std::int64_t count, Search* search) {
  Summary part;
  each_key(x, count, [&](std::int32_t key) {
    const bool finite = key < infinite;
    part.sum += finite ? static_cast<double>(magnitude_of(key)) : 0.0;
    part.smallest = min(part.smallest, key);
    part.largest = max(part.largest, finite ? key : 0);
    part.non_finite += !finite;
  });
  part = of_block(part);
  if (threadIdx.x == 0) search->parts[blockIdx.x] = part;
  if (!last_block(search)) return;
  Summary all;
  for (unsigned i = threadIdx.x; i < gridDim.x; i += threads) all = with(all, read_part(search->parts + i));
  all = of_block(all);
  if (threadIdx.x != 0) return;
  search->passes = 1;
  search->non_finite = all.non_finite;
  search->decided = !open_bounds(search->bounds, search->task.k, count, all.non_finite);
  if (search->task.how.method == Method::exact) return;
  search->bisection = Bisection(search->task.how, search->task.k, count, all);
  search->bounds = search->bisection.bounds;
}

// --- bisection

template <int levels>
__global__ void __launch_bounds__(threads) count_above(const float* x, std::int64_t count, Search* search) {
  constexpr int nodes = (1 << levels) - 1;
  if (search->bisection.finished()) return;
  __shared__ std::int32_t shared[nodes];
  __shared__ unsigned sums[nodes];
  if (threadIdx.x < nodes) {
    shared[threadIdx.x] = search->bisection.above(static_cast<int>(threadIdx.x) + 1);
    sums[threadIdx.x] = 0;
  }
  __syncthreads();
  std::int32_t above[nodes];
  unsigned counts[nodes] = {};
#pragma unroll
  for (int node = 0; node < nodes; ++node) above[node] = shared[node];
  each_key(x, count, [&](std::int32_t key) {
#pragma unroll
    for (int node = 0; node < nodes; ++node) counts[node] += key > above[node];
  });
#pragma unroll
  for (int node = 0; node < nodes; ++node) {
    const unsigned of_warp = __reduce_add_sync(whole_warp, counts[node]);
    if (threadIdx.x % warp == 0) atomicAdd(&sums[node], of_warp);
  }
  __syncthreads();
  if (threadIdx.x < nodes)
    atomicAdd(&search->counts[threadIdx.x + 1], static_cast<unsigned long long>(sums[threadIdx.x]));
  if (!last_block(search) || threadIdx.x != 0) return;
  std::int64_t found[1 + nodes];
  for (int node = 1; node <= nodes; ++node) {
    found[node] = static_cast<std::int64_t>(__ldcg(&search->counts[node]));
    search->counts[node] = 0;
  }
  search->bisection.advance(found, levels);
  search->bounds = search->bisection.bounds;
  ++search->passes;
}

using CountAbove = void (*)(const float*, std::int64_t, Search*);
constexpr CountAbove count_above_of[] = {count_above<1>, count_above<2>, count_above<3>, count_above<4>};

// --- radix

/// Finds the bin of the k-th key, in the last block. Threads have consecutive bins, the highest first, so
/// that the first thread has all bins whose first digit may belong to a key that is not finite.
__device__ void choose_bin(Search* search) {
  constexpr int each = most_bins / threads;
  static_assert(most_bins - (infinite >> digit_of(0).shift) == each);
  using Scan = cub::BlockScan<unsigned, threads>;
  __shared__ typename Scan::TempStorage storage;
  __shared__ bool decided;
  const RadixSearch radix = search->radix;
  const int highest = (1 << digit_of(radix.digit).bits) - 1;
  unsigned bins[each], sum = 0, above = 0;
  for (int i = 0; i < each; ++i) {
    const int bin = highest - (static_cast<int>(threadIdx.x) * each + i);
    bins[i] = bin >= 0 ? __ldcg(&search->bins[bin]) : 0;
    if (bin >= 0) search->bins[bin] = 0;
    sum += bins[i];
  }
  Scan(storage).ExclusiveSum(sum, above);
  if (threadIdx.x == 0) {
    ++search->passes;
    if (radix.digit == 0) {
      search->non_finite = sum;
      search->decided = !open_bounds(search->bounds, search->task.k, search->task.count, sum);
    }
    decided = search->decided;
  }
  __syncthreads();
  const std::int64_t wanted = search->task.k - radix.beyond;
  if (decided || above >= wanted || above + static_cast<std::int64_t>(sum) < wanted) return;
  int i = 0;
  for (; above + static_cast<std::int64_t>(bins[i]) < wanted; ++i) above += bins[i];
  search->radix.enter(highest - (static_cast<int>(threadIdx.x) * each + i), above, bins[i], search->task.k);
  search->bounds = search->radix.bounds;
}

__global__ void __launch_bounds__(threads) count_digit(const float* x, std::int64_t count, Search* search) {
  if (search->decided || search->radix.finished()) return;
  __shared__ unsigned bins[most_bins * replicas];
  for (int i = threadIdx.x; i < most_bins * replicas; i += threads) bins[i] = 0;
  __syncthreads();
  const Digit digit = digit_of(search->radix.digit);
  const auto prefix = static_cast<std::uint32_t>(search->radix.prefix);
  const std::uint32_t mask = (1u << digit.bits) - 1, width = 1u << (digit.shift + digit.bits);
  const std::uint32_t replica = threadIdx.x % replicas;
  each_key(x, count, [&](std::int32_t signed_key) {
    const auto key = static_cast<std::uint32_t>(signed_key);
    if (key - prefix < width) atomicAdd(&bins[(key >> digit.shift & mask) * replicas + replica], 1u);
  });
  __syncthreads();
  for (int bin = threadIdx.x; bin < most_bins; bin += threads) {
    unsigned sum = 0;
    for (int i = 0; i < replicas; ++i) sum += bins[bin * replicas + i];
    if (sum > 0) atomicAdd(&search->bins[bin], sum);
  }
  if (last_block(search)) choose_bin(search);
}

// --- by a sort

__global__ void __launch_bounds__(threads)
    write_keys(const float* x, std::int64_t count, std::uint32_t* keys) {
  for (std::int64_t i = blockIdx.x * std::int64_t{threads} + threadIdx.x; i < count;
       i += gridDim.x * std::int64_t{threads})
    keys[i] = static_cast<std::uint32_t>(key_of(x[i]));
}

/// Returns how many of the descending keys are at least `key`.
__device__ std::int64_t count_from(const std::uint32_t* keys, std::int64_t count, std::uint32_t key) {
  std::int64_t begin = 0;
  while (count > 0) {
    const std::int64_t half = count / 2;
    if (keys[begin + half] >= key) {
      begin += half + 1;
      count -= half + 1;
    } else {
      count = half;
    }
  }
  return begin;
}

__global__ void choose_key(const std::uint32_t* keys, Search* search) {
  ++search->passes;
  if (search->decided) return;
  const std::uint32_t key = keys[search->task.k - 1];
  search->bounds = {count_from(keys, search->task.count, key + 1), count_from(keys, search->task.count, key),
                    static_cast<std::int32_t>(key), static_cast<std::int32_t>(key) - 1};
}

// --- gathering

__global__ void cut(Search* search) {
  const Bounds bounds = search->bounds;
  if (search->task.k > 0) ++search->passes;
  search->cut = Cut(bounds, search->task.k, search->task.how.method, search->task.random);
  search->selected = bounds.selected(search->passes, search->non_finite);
}

/// Two counts: elements that are sure in the low 32 bits, those of the band in the high ones.
using Pair = unsigned long long;

/// The elements of a tile that a warp holds in registers.
struct WarpPart {
  std::int64_t first;
  std::int32_t keys[rounds];  ///< of one lane; -1 beyond the end
  float values[rounds];

  __device__ WarpPart(const float* x, std::int64_t count)
      : first(blockIdx.x * std::int64_t{tile} + static_cast<int>(threadIdx.x) / warp * of_warp) {
#pragma unroll
    for (int i = 0; i < rounds; ++i) {
      const std::int64_t at = index(i);
      values[i] = at < count ? x[at] : 0.0f;
      keys[i] = at < count ? key_of(values[i]) : -1;
    }
  }
  __device__ std::int64_t index(int round) const {
    return first + round * warp + static_cast<int>(threadIdx.x) % warp;
  }
  __device__ bool sure(int round, const Cut& cut) const {
    return keys[round] > cut.sure;
  }
  __device__ bool of_band(int round, const Cut& cut) const {
    return keys[round] >= 0 && keys[round] > cut.band && keys[round] <= cut.sure;
  }
  /// Writes the counts of all warps of the block to `pairs`.
  __device__ void count(const Cut& cut, Pair (&pairs)[warps]) const {
    unsigned both = 0;  // a warp has at most 512, so 16 bits suffice
#pragma unroll
    for (int i = 0; i < rounds; ++i) both += (sure(i, cut) ? 1u : 0u) + (of_band(i, cut) ? 1u << 16 : 0u);
    both = __reduce_add_sync(whole_warp, both);
    if (threadIdx.x % warp == 0)
      pairs[threadIdx.x / warp] = (both & 0xffffu) | static_cast<Pair>(both >> 16) << 32;
    __syncthreads();
  }
};

__global__ void __launch_bounds__(threads)
    count_tiles(const float* x, std::int64_t count, const Search* search, Pair* pairs) {
  __shared__ Pair of_warps[warps];
  WarpPart(x, count).count(search->cut, of_warps);
  if (threadIdx.x != 0) return;
  Pair sum = 0;
  for (const Pair& each : of_warps) sum += each;
  pairs[blockIdx.x] = sum;
}

/// Writes each element to its place: after all sure ones before it, and those of the band before it that are
/// taken. `before` has the counts of earlier tiles.
__global__ void __launch_bounds__(threads) gather(const float* x, std::int64_t count, const Search* search,
                                                  const Pair* before, std::int32_t* indices, float* values) {
  __shared__ Pair of_warps[warps];
  const Cut cut = search->cut;
  const WarpPart part(x, count);
  part.count(cut, of_warps);
  Pair pair = before[blockIdx.x];
  for (int i = 0; i < static_cast<int>(threadIdx.x) / warp; ++i) pair += of_warps[i];
  std::int64_t sure = static_cast<std::int64_t>(pair & 0xffffffffu);
  std::int64_t of_band = static_cast<std::int64_t>(pair >> 32) - cut.skip;  // place among those taken
  const unsigned lower = (1u << threadIdx.x % warp) - 1;
#pragma unroll
  for (int i = 0; i < rounds; ++i) {
    const unsigned sures = __ballot_sync(whole_warp, part.sure(i, cut));
    const unsigned bands = __ballot_sync(whole_warp, part.of_band(i, cut));
    const std::int64_t place = of_band + __popc(bands & lower);
    const bool taken = part.of_band(i, cut) && place >= 0 && place < cut.take;
    if (part.sure(i, cut) || taken) {
      const std::int64_t to = sure + __popc(sures & lower) + min(max(place, std::int64_t{0}), cut.take);
      indices[to] = static_cast<std::int32_t>(part.index(i));
      values[to] = part.values[i];
    }
    sure += __popc(sures);
    of_band += __popc(bands);
  }
}

// --- error feedback

__global__ void __launch_bounds__(threads)
    add_at(const float* values, const std::int32_t* indices, std::int64_t count, float* into) {
  const std::int64_t j = blockIdx.x * std::int64_t{threads} + threadIdx.x;
  if (j < count) into[indices[j]] += values[j];
}

__global__ void __launch_bounds__(threads)
    clear_at(const std::int32_t* indices, std::int64_t count, float* in) {
  const std::int64_t j = blockIdx.x * std::int64_t{threads} + threadIdx.x;
  if (j < count) in[indices[j]] = 0;
}

unsigned blocks_of(std::int64_t count, int size) {
  return static_cast<unsigned>((count + size - 1) / size);
}

}  // namespace

struct TopK::State {
  DeviceBuffer there, tiles, keys, scratch;
  PinnedBuffer result;
  bool launched = false;
  LastLaunch last;

  void sort(const float* x, std::int64_t count, Search* search, cudaStream_t stream) {
    auto* const from = reinterpret_cast<std::uint32_t*>(
        keys.at_least(2 * static_cast<std::size_t>(count) * sizeof(std::uint32_t)));
    std::uint32_t* const sorted = from + count;
    constexpr int bits = 31;
    std::size_t bytes = 0;
    demand(cub::DeviceRadixSort::SortKeysDescending(nullptr, bytes, from, sorted, count, 0, bits, stream));
    write_keys<<<blocks_for(count), threads, 0, stream>>>(x, count, from);
    demand(cudaGetLastError());
    demand(cub::DeviceRadixSort::SortKeysDescending(scratch.at_least(bytes), bytes, from, sorted, count, 0,
                                                    bits, stream));
    choose_key<<<1, 1, 0, stream>>>(sorted, search);
    demand(cudaGetLastError());
  }

  void search_for(const float* x, std::int64_t count, const Selection& how, Search* search,
                  cudaStream_t stream) {
    const unsigned blocks = blocks_for(count);
    if (how.method == Method::radix) {
      for (int digit = 0; digit < digit_count; ++digit)
        count_digit<<<blocks, threads, 0, stream>>>(x, count, search);
      return demand(cudaGetLastError());
    }
    summarize<<<blocks, threads, 0, stream>>>(x, count, search);
    demand(cudaGetLastError());
    if (how.method == Method::exact) return sort(x, count, search, stream);
    for (int i = 0; i < most_counts(how); ++i)
      count_above_of[how.levels - 1]<<<blocks, threads, 0, stream>>>(x, count, search);
    demand(cudaGetLastError());
  }

  void write(const float* x, std::int64_t count, const Search* search, std::int32_t* indices, float* values,
             cudaStream_t stream) {
    const unsigned blocks = blocks_of(count, tile);
    auto* const pairs = reinterpret_cast<Pair*>(tiles.at_least(2 * blocks * sizeof(Pair)));
    std::size_t bytes = 0;
    demand(cub::DeviceScan::ExclusiveSum(nullptr, bytes, pairs, pairs + blocks, static_cast<int>(blocks),
                                         stream));
    count_tiles<<<blocks, threads, 0, stream>>>(x, count, search, pairs);
    demand(cudaGetLastError());
    demand(cub::DeviceScan::ExclusiveSum(scratch.at_least(bytes), bytes, pairs, pairs + blocks,
                                         static_cast<int>(blocks), stream));
    gather<<<blocks, threads, 0, stream>>>(x, count, search, pairs + blocks, indices, values);
    demand(cudaGetLastError());
  }

  void select(const float* x, std::int64_t count, const Selection& how, std::uint64_t random, std::int64_t k,
              std::int32_t* indices, float* values, cudaStream_t stream) {
    check_selection(count, how, k);
    last.demand_device("top-k");
    auto* const search = reinterpret_cast<Search*>(there.at_least(sizeof(Search)));
    start<<<1, threads, 0, stream>>>(search, {how, count, k, random});
    demand(cudaGetLastError());
    search_for(x, count, how, search, stream);
    cut<<<1, 1, 0, stream>>>(search);
    demand(cudaGetLastError());
    if (k > 0) write(x, count, search, indices, values, stream);
    demand(cudaMemcpyAsync(result.at_least(sizeof(Selected)), &search->selected, sizeof(Selected),
                           cudaMemcpyDeviceToHost, stream));
    last.record(stream);
    launched = true;
  }
};

TopK::TopK() : state_(new State) {}
TopK::~TopK() = default;

void TopK::select(const float* x, std::int64_t count, const Selection& how, std::uint64_t random,
                  std::int64_t k, std::int32_t* indices, float* values, void* stream) {
  state_->select(x, count, how, random, k, indices, values, static_cast<cudaStream_t>(stream));
}

Selected TopK::selected() const {
  if (!state_->launched) return {};
  state_->last.wait();
  return *reinterpret_cast<const Selected*>(state_->result.at_least(sizeof(Selected)));
}

void scatter_add(const float* values, const std::int32_t* indices, std::int64_t count, float* into,
                 void* stream) {
  if (count == 0) return;
  add_at<<<blocks_of(count, threads), threads, 0, static_cast<cudaStream_t>(stream)>>>(values, indices, count,
                                                                                       into);
  demand(cudaGetLastError());
}

void zero_at(const std::int32_t* indices, std::int64_t count, float* in, void* stream) {
  if (count == 0) return;
  clear_at<<<blocks_of(count, threads), threads, 0, static_cast<cudaStream_t>(stream)>>>(indices, count, in);
  demand(cudaGetLastError());
}

}  // namespace trainyard::kernels::cuda
