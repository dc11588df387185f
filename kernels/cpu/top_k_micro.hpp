// The inner loops of top_k.cpp. top_k_micro.cpp is compiled once for each instruction set, and each gives one
// of these tables; all give the same results to the bit. Keys are those of kernels/bisection.hpp.
#pragma once

#include <cstdint>

#include "kernels/bisection.hpp"

namespace trainyard::kernels {

constexpr int compact_slack = 16;  ///< elements that `compact` may write beyond its result

struct TopKMicro {
  Summary (*summarize)(const float* x, std::int64_t count);
  /// counts[i] += how many keys are above above[i]; `thresholds` is 1, 3, 7 or 15.
  void (*count)(const float* x, std::int64_t count, const std::int32_t* above, int thresholds,
                std::int64_t* counts);
  /// Writes first + i for all i with low <= key of x[i] < low + width, ascending, and returns their number.
  int (*compact)(const float* x, int count, std::int32_t low, std::uint32_t width, std::int32_t first,
                 std::int32_t* to);
};

extern const TopKMicro top_k_micro_portable;
#if defined(__x86_64__)
extern const TopKMicro top_k_micro_avx2, top_k_micro_avx512;
#endif

}  // namespace trainyard::kernels
