// An update of Adam in one look at each parameter (Kingma and Ba, ICLR 2015, algorithm 1; decoupled decay of Loshchilov
// and Hutter, ICLR 2019; largest averages of Reddi et al., ICLR 2018). float; of each element
//   g = gradient + decay weight        weight' = keep weight
//   mean += (1 - beta1) (g - mean)     square = beta2 square + (1 - beta2) g^2
//   weight = weight' - rate mean / (scale sqrt(square') + epsilon), square' the square, or the largest so far.
// No bit depends on who updates what. Results depend on the instruction set by rounding alone.
#pragma once

#include <cstdint>

#include "kernels/cpu/isa.hpp"

namespace trainyard::kernels {

struct AdamNumbers {
  float decay = 0.0f, keep = 1.0f;
  float beta2 = 0.999f;
  float of_mean = 0.1f, of_square = 0.001f;  ///< 1 - beta1, 1 - beta2
  float rate = 0.0f;                         ///< lr / (1 - beta1^t)
  float scale = 1.0f;                        ///< 1 / sqrt(1 - beta2^t)
  float epsilon = 1e-8f;
};

struct AdamUpdate {
  float* weight;
  const float* gradient;
  float *mean, *square;
  float* largest = nullptr;  ///< of square so far; null: without
};

/// Elements [begin, end).
using AdamKernel = void (*)(const AdamUpdate& what, const AdamNumbers& numbers, std::int64_t begin,
                            std::int64_t end);

/// Throws std::invalid_argument where the processor has not these instructions.
AdamKernel adam_kernel(Isa isa = fastest_isa());

}  // namespace trainyard::kernels
