// Multiplies intervals (kernels/interval.hpp) by numbers, in the thread's rounding mode.
#pragma once

#include <cstdint>

#include "kernels/cpu/isa.hpp"
#include "kernels/interval.hpp"

namespace trainyard::kernels {

/// Makes this thread round up while it lives, and compute with denormal numbers where it does without (at::Context::setFlushDenormal).
/// Nothing else may be computed meanwhile, as LibTorch's functions are made for rounding to nearest.
class Upward {
 public:
  explicit Upward(bool on);
  ~Upward();
  Upward(const Upward&) = delete;
  Upward& operator=(const Upward&) = delete;

 private:
  int before_;
  unsigned control_ = 0;  ///< what the thread's arithmetic was set to, on x86
};

/// out [rows, columns] += a [rows, inner] x weights [inner, columns], all row-major without gaps. Where the thread
/// rounds up, `out` then holds the exact sums, and is wider than they are by 260 roundings of the sum of the products'
/// sizes at most, however many there are. An inner index at which all intervals of some neighbouring rows are zero is
/// skipped. A row of `out` does not depend on the others. Gives the multiply-adds that were done, of which each
/// works on both ends.
std::int64_t interval_gemm(Isa isa, std::int64_t rows, std::int64_t inner, std::int64_t columns,
                           ConstIntervalRows a, const double* weights, IntervalRows out);

/// The sum of weights[i] times the interval a[i]: [-low, up], and of the largest sizes of the products.
struct IntervalSum {
  double low = 0.0, up = 0.0, size = 0.0;
};

/// sum += weights [count] x a [count], in the thread's rounding mode; `sizes` [count]: the larger end of each of a.
void interval_dot(Isa isa, std::int64_t count, const double* weights, ConstIntervalRows a,
                  const double* sizes, IntervalSum& sum);

}  // namespace trainyard::kernels
