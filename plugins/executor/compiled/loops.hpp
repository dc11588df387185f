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

}  // namespace compiled
