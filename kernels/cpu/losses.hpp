// Compares outputs with their targets in one pass: losses with their gradients, absolute errors, and whether
// a class is among those with the largest scores. float; sums are double after a block of elements, and each
// row or block is computed by itself, so that no bit depends on who computes it. Callers divide rows and
// blocks. Results depend on the instruction set by rounding alone. exp and log are within 2 ulp; exp is 0
// below 2^-126. NaN stays NaN.
#pragma once

#include <cstdint>

#include "kernels/cpu/isa.hpp"

namespace trainyard::kernels {

/// `classes` scores per row, rows `stride` elements apart, and the class of each row.
struct ClassScores {
  const float* scores = nullptr;
  std::int64_t stride = 0, classes = 0;
  const std::int64_t* target = nullptr;
};

/// The loss of a row with class t and softmax p: -sum over c of q_c log p_c, with q_c = smoothing weight_c /
/// classes, plus (1 - smoothing) weight_t at t (torch.nn.CrossEntropyLoss).
struct CrossEntropy {
  ClassScores of;
  std::int64_t ignored = -1;      ///< rows of this target have loss and gradient 0
  const float* weight = nullptr;  ///< [classes]; null: 1
  double weight_sum = 0.0;        ///< over the classes, where there are weights
  double smoothing = 0.0;
  double scale = 1.0;         ///< of the gradient
  double* loss = nullptr;     ///< [rows]
  float* gradient = nullptr;  ///< [rows, classes]; null: not wanted
};

constexpr std::int64_t loss_block = 1024;  // elements

/// (1 - t) log(1 + exp(x)) + positive t log(1 + exp(-x)), element by element (torch.nn.BCEWithLogitsLoss).
struct BinaryCrossEntropy {
  const float *logits = nullptr, *target = nullptr;
  std::int64_t size = 0;
  float positive = 1.0f;      ///< weight of the positive class
  float scale = 1.0f;         ///< of the gradient
  double* loss = nullptr;     ///< [blocks]: sums
  float* gradient = nullptr;  ///< [size]; null: not wanted
};

struct AbsoluteError {
  const float *values = nullptr, *target = nullptr;
  std::int64_t size = 0;
  double* sum = nullptr;  ///< [blocks]
};

struct LossKernels {
  /// Computes rows [begin, end), whose targets are classes or `ignored`.
  void (*cross_entropy)(const CrossEntropy& what, std::int64_t begin, std::int64_t end);
  /// Computes blocks [begin, end) of loss_block elements, of which the last may have fewer.
  void (*binary_cross_entropy)(const BinaryCrossEntropy& what, std::int64_t begin, std::int64_t end);
  void (*absolute_error)(const AbsoluteError& what, std::int64_t begin, std::int64_t end);
  /// Counts rows of [begin, end) whose target is not `ignored` and is among the `most` largest scores; of
  /// equal ones the first is the largest, and NaN is larger than all numbers. A target that is no class is
  /// not among them.
  std::int64_t (*hits)(const ClassScores& of, std::int64_t ignored, std::int64_t most, std::int64_t begin,
                       std::int64_t end);
};

/// Throws std::invalid_argument where the processor has not these instructions.
const LossKernels& loss_kernels(Isa isa = fastest_isa());

}  // namespace trainyard::kernels
