#include "kernels/cuda/interval_conv.hpp"

#include <cuda_runtime.h>

#include <algorithm>

#include "kernels/cuda/buffer.hpp"
#include "kernels/cuda/demand.hpp"

namespace trainyard::kernels::cuda {
namespace {

constexpr int threads = 256;

struct RoundUp {
  __host__ __device__ double operator()(double a, double b, double c) const {
#ifdef __CUDA_ARCH__
    return __fma_ru(a, b, c);
#else
    return 0.0;  // never called
#endif
  }
};
struct RoundToNearest {
  __host__ __device__ double operator()(double a, double b, double c) const {
#ifdef __CUDA_ARCH__
    return __fma_rn(a, b, c);
#else
    return 0.0;
#endif
  }
};

template <class MultiplyAdd>
__global__ void __launch_bounds__(threads)
    put_over_input(IntervalConv conv, std::int64_t count, ConstIntervalRows from, const double* weights,
                   const std::int64_t* pixels, IntervalRows into) {
  for (std::int64_t at = blockIdx.x * std::int64_t{threads} + threadIdx.x; at < count;
       at += gridDim.x * std::int64_t{threads})
    interval_conv_at(conv, at, from, weights, pixels, into, MultiplyAdd{});
}

}  // namespace

struct Weights::State {
  DeviceBuffer memory;
};

Weights::Weights(const double* host, std::int64_t count) : state_(new State) {
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(double);
  demand(cudaMemcpy(state_->memory.at_least(bytes), host, bytes, cudaMemcpyHostToDevice));
}
Weights::~Weights() = default;
const double* Weights::data() const {
  return reinterpret_cast<const double*>(state_->memory.at_least(0));
}

struct IntervalConvolution::State {
  DeviceBuffer from, into, pixels;
};

IntervalConvolution::IntervalConvolution() : state_(new State) {}
IntervalConvolution::~IntervalConvolution() = default;

void IntervalConvolution::add(const IntervalConv& conv, ConstIntervalRows from, const Weights& weights,
                              const std::int64_t* pixels, IntervalRows into, bool upward) {
  const std::int64_t read = conv.forms * conv.out.coefficients(), count = conv.forms * conv.in.coefficients();
  if (count == 0) return;
  const auto bytes = [](std::int64_t numbers) { return static_cast<std::size_t>(numbers) * sizeof(double); };
  auto* const a = reinterpret_cast<double*>(state_->from.at_least(bytes(2 * read)));
  auto* const b = reinterpret_cast<double*>(state_->into.at_least(bytes(2 * count)));
  auto* const p = reinterpret_cast<std::int64_t*>(state_->pixels.at_least(bytes(2 * conv.forms)));
  const auto copy = [](void* to, const void* what, std::size_t size) {
    demand(cudaMemcpy(to, what, size, cudaMemcpyDefault));
  };
  copy(a, from.low, bytes(read));
  copy(a + read, from.up, bytes(read));
  copy(b, into.low, bytes(count));
  copy(b + count, into.up, bytes(count));
  copy(p, pixels, bytes(2 * conv.forms));
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>((count + threads - 1) / threads, 1 << 20));
  const auto kernel = upward ? put_over_input<RoundUp> : put_over_input<RoundToNearest>;
  kernel<<<blocks, threads>>>(conv, count, {a, a + read}, weights.data(), p, {b, b + count});
  demand(cudaGetLastError());
  copy(into.low, b, bytes(count));
  copy(into.up, b + count, bytes(count));
}

}  // namespace trainyard::kernels::cuda
