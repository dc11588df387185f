// Loops that oneDNN has no primitive for, over floats and over bfloat16 (T is float or Half). Equal results whatever
// the number of threads.
#pragma once

#include <cstdint>

namespace compiled {

/// The bits of a bfloat16. What is computed of them is computed in float, and rounded to the nearest, ties to even.
enum class Half : std::uint16_t {};

void copy(float* to, const float* from, std::int64_t count);
template <class T>
void add_into(T* total, const T* part, std::int64_t count);
template <class T>
void add(T* sum, const T* a, const T* b, std::int64_t count);
/// max(a + b, 0).
template <class T>
void add_relu(T* sum, const T* a, const T* b, std::int64_t count);
/// What of a gradient goes through a ReLU that gave `output`; in place too.
template <class T>
void through_relu(T* masked, const T* gradient, const T* output, std::int64_t count);
/// The sums of the columns of a matrix.
template <class T>
void sum_rows(float* sums, const T* matrix, std::int64_t rows, std::int64_t columns);
/// The sums over images and pixels of each channel of images in blocks of channels.
void sum_pixels(float* sums, const float* images, std::int64_t count, std::int64_t channels,
                std::int64_t pixels, std::int64_t block);
/// On the thread that calls.
void widen(float* to, const Half* from, std::int64_t count);
void narrow(Half* to, const float* from, std::int64_t count);

}  // namespace compiled
