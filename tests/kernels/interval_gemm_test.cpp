// What a thread that rounds up computes with; products of intervals are tested by the bounds that rest on them.
#include "kernels/cpu/interval_gemm.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <catch2/catch.hpp>

namespace interval_gemm_tests {

#if defined(__x86_64__)
TEST_CASE("A thread that rounds up has denormal numbers, and as before behind it") {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | _MM_FLUSH_ZERO_ON | 0x40);  // as at::Context::setFlushDenormal
  volatile double small = 0x1p-1000, factor = 0x1p-60;
  bool upward = false;
  {
    const trainyard::kernels::Upward rounds(true);
    upward = small * factor > 0.0;
  }
  const bool behind = small * factor > 0.0;
  _mm_setcsr(before);
  CHECK(upward);
  CHECK_FALSE(behind);
}
#endif

}  // namespace interval_gemm_tests
