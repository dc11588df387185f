#include "kernels/cpu/segments.hpp"

#include <algorithm>
#include <stdexcept>

#include "kernels/cpu/segments_micro.hpp"

namespace trainyard::kernels {
namespace {

const SegmentMicros& micros_of(Isa isa) {
  if (!supported(isa)) throw std::invalid_argument("segments: the processor has not these instructions");
#if defined(__x86_64__)
  if (isa == Isa::avx512) return segments_micro_avx512;
  if (isa == Isa::avx2) return segments_micro_avx2;
#endif
  return segments_micro_portable;
}

template <class T>
const SegmentMicro<T>& micro_of(Isa isa) {
  if constexpr (sizeof(T) == sizeof(double))
    return micros_of(isa).of_double;
  else
    return micros_of(isa).of_float;
}

}  // namespace

template <class T>
void sum(Isa isa, const SegmentSum<T>& what, std::int64_t begin, std::int64_t end) {
  micro_of<T>(isa).sum(what, begin, end);
}

template <class T>
void maximum(Isa isa, const SegmentMax<T>& what, std::int64_t begin, std::int64_t end) {
  micro_of<T>(isa).maximum(what, begin, end);
}

template <class T>
void dots(Isa isa, const SegmentDots<T>& what, std::int64_t begin, std::int64_t end) {
  micro_of<T>(isa).dots(what, begin, end);
}

template <class T>
void add_maximum_gradient(const SegmentMax<T>& of, const T* dy, T* dx, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = 0; row < of.segments.rows; ++row)
    for (std::int64_t i = row * of.width + begin; i < row * of.width + end; ++i)
      if (of.entry[i] >= 0) dx[of.segments.named(of.entry[i]) * of.width + i - row * of.width] += dy[i];
}

template <class T>
void subtract_maximum(const Segments& segments, std::int64_t heads, const T* x, T* y, std::int64_t begin,
                      std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row)
    for (std::int64_t head = 0; head < heads; ++head) {
      const std::int64_t first = segments.offsets[row] * heads + head;
      const std::int64_t last = segments.offsets[row + 1] * heads;
      if (first >= last) continue;
      T largest = x[first];
      for (std::int64_t i = first; i < last; i += heads) largest = std::max(largest, x[i]);
      for (std::int64_t i = first; i < last; i += heads) y[i] = x[i] - largest;
    }
}

template <class T>
void divide_by_sum(const Segments& segments, std::int64_t heads, T* y, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row)
    for (std::int64_t head = 0; head < heads; ++head) {
      const std::int64_t first = segments.offsets[row] * heads + head;
      const std::int64_t last = segments.offsets[row + 1] * heads;
      T total = 0;
      for (std::int64_t i = first; i < last; i += heads) total += y[i];
      for (std::int64_t i = first; i < last; i += heads) y[i] /= total;
    }
}

template <class T>
void softmax_gradient(const Segments& segments, std::int64_t heads, const T* y, const T* dy, T* dx,
                      std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row)
    for (std::int64_t head = 0; head < heads; ++head) {
      const std::int64_t first = segments.offsets[row] * heads + head;
      const std::int64_t last = segments.offsets[row + 1] * heads;
      T total = 0;
      for (std::int64_t i = first; i < last; i += heads) total += y[i] * dy[i];
      for (std::int64_t i = first; i < last; i += heads) dx[i] = y[i] * (dy[i] - total);
    }
}

template <class T>
void add_ends(const Segments& segments, std::int64_t heads, const T* a, const T* b, T* y, std::int64_t begin,
              std::int64_t end) {
  for (std::int64_t row = begin; row < end; ++row)
    for (std::int64_t e = segments.offsets[row]; e < segments.offsets[row + 1]; ++e)
      for (std::int64_t head = 0; head < heads; ++head)
        y[e * heads + head] = a[segments.named(e) * heads + head] + b[row * heads + head];
}

#define TRAINYARD_INSTANTIATE(T)                                                                           \
  template void sum(Isa, const SegmentSum<T>&, std::int64_t, std::int64_t);                                \
  template void maximum(Isa, const SegmentMax<T>&, std::int64_t, std::int64_t);                            \
  template void dots(Isa, const SegmentDots<T>&, std::int64_t, std::int64_t);                              \
  template void add_maximum_gradient(const SegmentMax<T>&, const T*, T*, std::int64_t, std::int64_t);      \
  template void subtract_maximum(const Segments&, std::int64_t, const T*, T*, std::int64_t, std::int64_t); \
  template void divide_by_sum(const Segments&, std::int64_t, T*, std::int64_t, std::int64_t);              \
  template void softmax_gradient(const Segments&, std::int64_t, const T*, const T*, T*, std::int64_t,      \
                                 std::int64_t);                                                            \
  template void add_ends(const Segments&, std::int64_t, const T*, const T*, T*, std::int64_t, std::int64_t)
TRAINYARD_INSTANTIATE(float);
TRAINYARD_INSTANTIATE(double);

void transpose(const Segments& segments, std::int64_t columns, std::int64_t* offsets, std::int64_t* row,
               std::int64_t* entry) {
  const std::int64_t entries = segments.entries();
  std::fill_n(offsets, columns + 1, 0);
  for (std::int64_t e = 0; e < entries; ++e) ++offsets[segments.named(e)];
  std::int64_t before = 0;
  for (std::int64_t c = 0; c <= columns; ++c) {
    const std::int64_t count = offsets[c];
    offsets[c] = before;
    before += count;
  }
  for (std::int64_t r = 0; r < segments.rows; ++r)
    for (std::int64_t e = segments.offsets[r]; e < segments.offsets[r + 1]; ++e) {
      const std::int64_t place = offsets[segments.named(e)]++;
      row[place] = r;
      entry[place] = e;
    }
  // Each offset has moved to the end of its column, where the next one begins.
  std::copy_backward(offsets, offsets + columns, offsets + columns + 1);
  offsets[0] = 0;
}

std::int64_t balanced_row(const Segments& segments, std::int64_t parts, std::int64_t part) {
  const std::int64_t work = (segments.entries() + segments.rows) / parts * part +
                            (segments.entries() + segments.rows) % parts * part / parts;
  std::int64_t low = 0, high = segments.rows;
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (segments.offsets[middle] + middle < work)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

}  // namespace trainyard::kernels
