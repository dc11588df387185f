// Updates floats as Adam and AdamW do (Kingma and Ba, ICLR 2015; Loshchilov and Hutter, ICLR 2019).
#pragma once

#include <cstdint>

#include "kernels/cpu/isa.hpp"

namespace trainyard::kernels {

/// A step of Adam for a row: mean += of_mean (g - mean), square = beta2 square + of_square g^2, weight = kept
/// weight - rate mean / (inverse_root sqrt(square) + eps), with g = gradient + weight_decay weight.
struct AdamStep {
  float of_mean;           ///< 1 - beta1, rounded by itself: the float next to beta1 is further off
  float beta2, of_square;  ///< of_square: 1 - beta2
  float rate;              ///< lr / (1 - beta1^t)
  float inverse_root;      ///< 1 / sqrt(1 - beta2^t)
  float eps, weight_decay;
  float kept = 1.0f;  ///< 1 - lr * decay where decay is no part of the gradient
};

/// The parameters of a step. `decouples`: weight decay is AdamW's, else a part of the gradient.
struct AdamNumbers {
  double lr, beta1, beta2, eps, weight_decay = 0.0;
  bool decouples = false;
};

/// Returns update number `count` of a row, from 1; in double, as 1 - beta^t near 1 has no digits to spare.
AdamStep adam_step(const AdamNumbers& numbers, std::int64_t count);

/// Part of a parameter, and of Adam's two averages of its gradients.
struct AdamRow {
  float *weight, *exp_avg, *exp_avg_sq;
  std::int64_t width;
};

struct AdamKernels {
  /// Does a step of Adam with the gradient of the row. No bit depends on how a long row is divided.
  void (*step)(const AdamRow& row, const float* gradient, const AdamStep& numbers);
  /// Does steps with zero gradients, in their order: one call gives the same bits as several.
  void (*idle)(const AdamRow& row, const AdamStep* steps, std::int64_t count);
};

/// Throws std::invalid_argument where the processor has not these instructions.
const AdamKernels& adam_kernels(Isa isa = fastest_isa());

}  // namespace trainyard::kernels
