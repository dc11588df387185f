// The inner loops of segments.cpp. segments_micro.cpp is compiled once for each instruction set, and each
// gives one of these tables. Sums without weights are the same bits in all.
#pragma once

#include "kernels/cpu/segments.hpp"

namespace trainyard::kernels {

template <class T>
struct SegmentMicro {
  void (*sum)(const SegmentSum<T>& what, std::int64_t begin, std::int64_t end);
  void (*maximum)(const SegmentMax<T>& what, std::int64_t begin, std::int64_t end);
  void (*dots)(const SegmentDots<T>& what, std::int64_t begin, std::int64_t end);
};

struct SegmentMicros {
  SegmentMicro<float> of_float;
  SegmentMicro<double> of_double;
};

extern const SegmentMicros segments_micro_portable;
#if defined(__x86_64__)
extern const SegmentMicros segments_micro_avx2, segments_micro_avx512;
#endif

}  // namespace trainyard::kernels
