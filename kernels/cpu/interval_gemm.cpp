#include "kernels/cpu/interval_gemm.hpp"

#include <cfenv>
#include <stdexcept>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/cpu/interval_gemm_micro.hpp"

namespace trainyard::kernels {

#if defined(__x86_64__)
namespace {
constexpr unsigned denormals_are_zero = 0x40;  // of the control register MXCSR
}
#endif

Upward::Upward(bool on) : before_(std::fegetround()) {
#if defined(__x86_64__)
  control_ = _mm_getcsr();
  if (on) _mm_setcsr(control_ & ~(_MM_FLUSH_ZERO_MASK | denormals_are_zero));
#endif
  if (on && std::fesetround(FE_UPWARD) != 0)
    throw std::runtime_error("this processor does not round up: nothing can be proven on it");
}

Upward::~Upward() {
  std::fesetround(before_);
#if defined(__x86_64__)
  _mm_setcsr(control_);
#endif
}

std::int64_t interval_gemm(Isa isa, std::int64_t rows, std::int64_t inner, std::int64_t columns,
                           ConstIntervalRows a, const double* weights, IntervalRows out) {
  if (!supported(isa)) throw std::invalid_argument("interval_gemm: the processor has not these instructions");
  const double unit = std::fegetround() == FE_UPWARD ? 0x1p-52 : 0.0;
#if defined(__x86_64__)
  if (isa == Isa::avx512) return interval_gemm_avx512(rows, inner, columns, a, weights, unit, out);
  if (isa == Isa::avx2) return interval_gemm_avx2(rows, inner, columns, a, weights, unit, out);
#endif
  return interval_gemm_portable(rows, inner, columns, a, weights, unit, out);
}

void interval_dot(Isa isa, std::int64_t count, const double* weights, ConstIntervalRows a,
                  const double* sizes, IntervalSum& sum) {
  if (!supported(isa)) throw std::invalid_argument("interval_dot: the processor has not these instructions");
#if defined(__x86_64__)
  if (isa == Isa::avx512) return interval_dot_avx512(count, weights, a, sizes, sum);
  if (isa == Isa::avx2) return interval_dot_avx2(count, weights, a, sizes, sum);
#endif
  interval_dot_portable(count, weights, a, sizes, sum);
}

}  // namespace trainyard::kernels
