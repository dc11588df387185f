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
/// Rows of scores become softmax(factor x score), and `logs` what the rows were divided by, as a logarithm. Row i
/// of a causal matrix has i + 1 entries, the others become 0.
void softmax_rows(float* scores, float* logs, std::int64_t rows, std::int64_t columns, float factor,
                  bool causal);
/// The same again from those logarithms.
void softmax_again(float* scores, const float* logs, std::int64_t rows, std::int64_t columns, float factor,
                   bool causal);
/// From weights, which softmax gave, and the gradient of them, what is to be the gradient of the scores: it
/// replaces the weights. `inner` is by row: the sum of weight x gradient.
void through_softmax(float* weights, const float* gradient, const float* inner, std::int64_t rows,
                     std::int64_t columns, float factor);

}  // namespace compiled
