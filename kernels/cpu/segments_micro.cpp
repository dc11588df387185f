// This file is compiled once per instruction set, named by TRAINYARD_ISA. It has no symbol that the linker
// could share with other units, as that code would be compiled for this set: functions of headers that it
// calls are trivial or forced inline.
#include "kernels/cpu/segments_micro.hpp"

#include "kernels/cpu/registers.hpp"

namespace trainyard::kernels {
namespace {

constexpr int short_bytes = 16;  // for parts that are narrower than a register

#define TRAINYARD_VECTOR(NAME, T, BYTES)                                                    \
  struct NAME {                                                                             \
    typedef T Element;                                                                      \
    typedef T Vector __attribute__((vector_size(BYTES)));                                   \
    typedef T Anywhere __attribute__((vector_size(BYTES), aligned(alignof(T)), may_alias)); \
    static constexpr int lanes = BYTES / static_cast<int>(sizeof(T));                       \
    static Vector load(const T* from) { return *reinterpret_cast<const Anywhere*>(from); }  \
    static void store(T* to, Vector value) { *reinterpret_cast<Anywhere*>(to) = value; }    \
  }
TRAINYARD_VECTOR(Floats, float, register_bytes);
TRAINYARD_VECTOR(Doubles, double, register_bytes);
TRAINYARD_VECTOR(ShortFloats, float, short_bytes);
TRAINYARD_VECTOR(ShortDoubles, double, short_bytes);

template <class T>
struct VectorsOf;
template <>
struct VectorsOf<float> {
  using Long = Floats;
  using Short = ShortFloats;
};
template <>
struct VectorsOf<double> {
  using Long = Doubles;
  using Short = ShortDoubles;
};

#define TRAINYARD_UNROLL _Pragma("GCC unroll 16")

constexpr int most_registers = 8;  // that hold sums of a row at a time
constexpr std::int64_t line = 64;  // bytes
/// Distance in entries from the one that is added to the one that is prefetched: rows lie anywhere, so the
/// processor cannot predict the next.
constexpr std::int64_t ahead = 4;

/// Prefetches `bytes` from an element on.
template <class T>
inline void fetch(const T* from, std::int64_t bytes) {
  for (std::int64_t byte = 0; byte < bytes; byte += line)
    __builtin_prefetch(reinterpret_cast<const char*>(from) + byte);
}

template <class T>
inline T weight_of(const SegmentSum<T>& s, std::int64_t entry, std::int64_t head) {
  return s.weight[(s.weight_row == nullptr ? entry : s.weight_row[entry]) * s.heads + head];
}

/// Computes sums of `registers` vectors of a row, from element `first` on. The last vector, at `last`, may
/// overlap the one before if a part does not end with a vector: shared elements get the same sum twice.
template <class V, int registers, bool weighted>
void sum_vectors(const SegmentSum<typename V::Element>& s, std::int64_t row, std::int64_t head,
                 std::int64_t first, std::int64_t last) {
  using T = typename V::Element;
  const std::int64_t stride = s.heads * s.width, entries = s.segments.entries();
  const std::int64_t end = s.segments.offsets[row + 1];
  const T* const x = s.x + head * s.width + first;
  typename V::Vector sums[registers] = {};
  for (std::int64_t e = s.segments.offsets[row]; e < end; ++e) {
    if (e + ahead < entries)
      fetch(x + s.segments.named(e + ahead) * stride, registers * static_cast<std::int64_t>(sizeof(sums[0])));
    const T* const from = x + s.segments.named(e) * stride;
    [[maybe_unused]] T weight = 1;
    if constexpr (weighted) weight = weight_of(s, e, head);
    TRAINYARD_UNROLL
    for (int i = 0; i < registers; ++i) {
      const typename V::Vector value = V::load(from + (i + 1 < registers ? i * V::lanes : last));
      if constexpr (weighted)
        sums[i] += value * weight;
      else
        sums[i] += value;
    }
  }
  T* const to = s.y + row * stride + head * s.width + first;
  TRAINYARD_UNROLL
  for (int i = 0; i < registers; ++i) V::store(to + (i + 1 < registers ? i * V::lanes : last), sums[i]);
}

template <class V, bool weighted>
void sum_vectors(const SegmentSum<typename V::Element>& s, std::int64_t row, std::int64_t head,
                 std::int64_t first, std::int64_t last, std::int64_t registers) {
  switch (registers) {
    case 1: return sum_vectors<V, 1, weighted>(s, row, head, first, last);
    case 2: return sum_vectors<V, 2, weighted>(s, row, head, first, last);
    case 3: return sum_vectors<V, 3, weighted>(s, row, head, first, last);
    case 4: return sum_vectors<V, 4, weighted>(s, row, head, first, last);
    case 5: return sum_vectors<V, 5, weighted>(s, row, head, first, last);
    case 6: return sum_vectors<V, 6, weighted>(s, row, head, first, last);
    case 7: return sum_vectors<V, 7, weighted>(s, row, head, first, last);
    default: return sum_vectors<V, 8, weighted>(s, row, head, first, last);
  }
}

/// Sums a part of at least one vector.
template <class V, bool weighted>
void sum_part(const SegmentSum<typename V::Element>& s, std::int64_t row, std::int64_t head) {
  const std::int64_t vectors = (s.width + V::lanes - 1) / V::lanes;
  for (std::int64_t done = 0; done < vectors;) {
    const std::int64_t left = vectors - done, taken = left < most_registers ? left : most_registers;
    const std::int64_t first = done * V::lanes, full = (taken - 1) * V::lanes;
    const std::int64_t over = s.width - V::lanes - first;  // where the last vector of the part begins
    sum_vectors<V, weighted>(s, row, head, first, over < full ? over : full, taken);
    done += taken;
  }
}

/// Sums a part of a few elements.
template <class T, bool weighted>
void sum_narrow(const SegmentSum<T>& s, std::int64_t row, std::int64_t head) {
  constexpr int most = VectorsOf<T>::Short::lanes;
  const std::int64_t stride = s.heads * s.width;
  T sums[most] = {};
  for (std::int64_t e = s.segments.offsets[row]; e < s.segments.offsets[row + 1]; ++e) {
    const T* const from = s.x + s.segments.named(e) * stride + head * s.width;
    [[maybe_unused]] T weight = 1;
    if constexpr (weighted) weight = weight_of(s, e, head);
    for (std::int64_t i = 0; i < s.width; ++i) sums[i] += weighted ? weight * from[i] : from[i];
  }
  for (std::int64_t i = 0; i < s.width; ++i) s.y[row * stride + head * s.width + i] = sums[i];
}

template <class T, bool weighted>
void sum_rows(const SegmentSum<T>& s, std::int64_t begin, std::int64_t end) {
  using Long = typename VectorsOf<T>::Long;
  using Short = typename VectorsOf<T>::Short;
  for (std::int64_t row = begin; row < end; ++row)
    for (std::int64_t head = 0; head < s.heads; ++head) {
      if (s.width >= Long::lanes)
        sum_part<Long, weighted>(s, row, head);
      else if (s.width >= Short::lanes)
        sum_part<Short, weighted>(s, row, head);
      else
        sum_narrow<T, weighted>(s, row, head);
    }
}

template <class T>
void sum(const SegmentSum<T>& s, std::int64_t begin, std::int64_t end) {
  if (s.weight == nullptr) {
    SegmentSum<T> whole = s;  // parts differ in their weights alone
    whole.width = s.heads * s.width;
    whole.heads = 1;
    return sum_rows<T, false>(whole, begin, end);
  }
  sum_rows<T, true>(s, begin, end);
}

template <class T>
void maximum(const SegmentMax<T>& s, std::int64_t begin, std::int64_t end) {
  const std::int64_t entries = s.segments.entries(), bytes = s.width * static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t row = begin; row < end; ++row) {
    T* const __restrict y = s.y + row * s.width;
    std::int32_t* const __restrict entry = s.entry + row * s.width;
    const std::int64_t first = s.segments.offsets[row], last = s.segments.offsets[row + 1];
    for (std::int64_t i = 0; i < s.width; ++i) {
      y[i] = first < last ? s.x[s.segments.named(first) * s.width + i] : T{0};
      entry[i] = first < last ? static_cast<std::int32_t>(first) : -1;
    }
    for (std::int64_t e = first + 1; e < last; ++e) {
      if (e + ahead < entries) fetch(s.x + s.segments.named(e + ahead) * s.width, bytes);
      const T* const __restrict from = s.x + s.segments.named(e) * s.width;
      const auto number = static_cast<std::int32_t>(e);
      for (std::int64_t i = 0; i < s.width; ++i) {
        const T value = from[i], before = y[i];
        const bool larger = (value > before) | (value != value);
        y[i] = larger ? value : before;
        entry[i] = larger ? number : entry[i];
      }
    }
  }
}

template <class T>
T dot(const T* a, const T* b, std::int64_t width) {
  using V = typename VectorsOf<T>::Long;
  constexpr int copies = 4;  // an addition waits for the one before it
  typename V::Vector sums[copies] = {};
  std::int64_t i = 0;
  for (; i + copies * V::lanes <= width; i += copies * V::lanes) {
    TRAINYARD_UNROLL
    for (int c = 0; c < copies; ++c) sums[c] += V::load(a + i + c * V::lanes) * V::load(b + i + c * V::lanes);
  }
  for (; i + V::lanes <= width; i += V::lanes) sums[0] += V::load(a + i) * V::load(b + i);
  const typename V::Vector all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  T result = 0;
  for (int lane = 0; lane < V::lanes; ++lane) result += all[lane];
  for (; i < width; ++i) result += a[i] * b[i];
  return result;
}

template <class T>
void dots(const SegmentDots<T>& s, std::int64_t begin, std::int64_t end) {
  const std::int64_t stride = s.heads * s.width, entries = s.segments.entries();
  const std::int64_t bytes = stride * static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t row = begin; row < end; ++row)
    for (std::int64_t e = s.segments.offsets[row]; e < s.segments.offsets[row + 1]; ++e) {
      if (e + ahead < entries) fetch(s.x + s.segments.named(e + ahead) * stride, bytes);
      const T* const g = s.g + row * stride;
      const T* const x = s.x + s.segments.named(e) * stride;
      for (std::int64_t head = 0; head < s.heads; ++head)
        s.product[e * s.heads + head] = dot(g + head * s.width, x + head * s.width, s.width);
    }
}

}  // namespace

#define TRAINYARD_JOIN(a, b) a##b
#define TRAINYARD_NAME(isa) TRAINYARD_JOIN(segments_micro_, isa)
const SegmentMicros TRAINYARD_NAME(TRAINYARD_ISA) = {{sum<float>, maximum<float>, dots<float>},
                                                     {sum<double>, maximum<double>, dots<double>}};

}  // namespace trainyard::kernels
