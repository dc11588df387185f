// Loops over floats that oneDNN has no primitive for. Equal results whatever the number of threads.
#pragma once

#include <cstdint>

namespace compiled {

void copy(float* to, const float* from, std::int64_t count);
void add_into(float* total, const float* part, std::int64_t count);
void add(float* sum, const float* a, const float* b, std::int64_t count);
/// max(a + b, 0).
void add_relu(float* sum, const float* a, const float* b, std::int64_t count);
/// What of a gradient goes through a ReLU that gave `output`; in place too.
void through_relu(float* masked, const float* gradient, const float* output, std::int64_t count);
/// The sums of the columns of a matrix.
void sum_rows(float* sums, const float* matrix, std::int64_t rows, std::int64_t columns);
/// The sums over images and pixels of each channel of images in blocks of channels.
void sum_pixels(float* sums, const float* images, std::int64_t count, std::int64_t channels,
                std::int64_t pixels, std::int64_t block);
/// The inner product of each row of two matrices, whose rows lie `stride` apart.
void row_products(float* products, const float* a, const float* b, std::int64_t rows, std::int64_t columns,
                  std::int64_t stride);
/// Rows of the scores of attention, or of its weights. Row `number` + i of a causal matrix has that many entries and
/// one more, the others are 0.
struct ScoreRows {
  float* first;
  std::int64_t rows, columns, stride;
  std::int64_t number;  ///< of the first one
  float factor;
  bool causal;
};
/// The rows become softmax(factor x score), and `logs` what they were divided by, as a logarithm.
void softmax_rows(const ScoreRows& scores, float* logs);
/// The same again from those logarithms.
void softmax_again(const ScoreRows& scores, const float* logs);
/// From weights, which softmax gave, and the gradient of them, in rows like those, what is to be the gradient of the
/// scores: it replaces the weights. `inner` is by row: the sum of weight x gradient.
void through_softmax(const ScoreRows& weights, const float* gradient, const float* inner);

}  // namespace compiled
