// Compiled once for each instruction set, with TRAINYARD_ISA its name. Nothing in it may be a symbol of which
// other units could take their copy, as that would be compiled for this set.
#include "kernels/cpu/adam_micro.hpp"

namespace trainyard::kernels {
namespace {

template <bool with_largest>
inline __attribute__((always_inline)) void update(const AdamUpdate& what, const AdamNumbers& numbers,
                                                  std::int64_t begin, std::int64_t end) {
  const AdamNumbers n = numbers;
  float* const __restrict weight = what.weight;
  const float* const __restrict gradient = what.gradient;
  float* const __restrict mean = what.mean;
  float* const __restrict square = what.square;
  float* const __restrict largest = what.largest;
  for (std::int64_t i = begin; i < end; ++i) {
    const float g = gradient[i] + n.decay * weight[i];
    mean[i] += n.of_mean * (g - mean[i]);
    square[i] = n.beta2 * square[i] + n.of_square * g * g;
    float of = square[i];
    // NaN stays, as at::maximum has it.
    if (with_largest) largest[i] = of = of < largest[i] ? largest[i] : of;
    const float root = __builtin_sqrtf(of) * n.scale + n.epsilon;
    weight[i] = n.keep * weight[i] - n.rate * mean[i] / root;
  }
}

}  // namespace

#define TRAINYARD_JOIN(a, b) a##b
#define TRAINYARD_NAME(isa) TRAINYARD_JOIN(adam_, isa)
void TRAINYARD_NAME(TRAINYARD_ISA)(const AdamUpdate& what, const AdamNumbers& numbers, std::int64_t begin,
                                   std::int64_t end) {
  what.largest != nullptr ? update<true>(what, numbers, begin, end)
                          : update<false>(what, numbers, begin, end);
}

}  // namespace trainyard::kernels
