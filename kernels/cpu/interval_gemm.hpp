// Products of rows of intervals with a matrix of numbers. An interval [a, b] is kept as the pair (-a, b): both
// ends are then rounded outward by rounding up, and the same instructions serve a bound that is proven (the
// thread rounds up) and one that is not (it rounds to nearest).
#pragma once

#include <cstdint>

#include "kernels/cpu/isa.hpp"

namespace trainyard::kernels {

/// Has this thread round up, and then as it did before. Nothing else may be computed meanwhile: LibTorch's
/// functions are made for rounding to nearest.
class Upward {
 public:
  explicit Upward(bool on);
  ~Upward();
  Upward(const Upward&) = delete;
  Upward& operator=(const Upward&) = delete;

 private:
  int before_;
};

/// Intervals [-low[i], up[i]].
struct IntervalRows {
  double *low, *up;
};
struct ConstIntervalRows {
  const double *low, *up;
};

/// out [rows, columns] += a [rows, inner] x weights [inner, columns], all row-major without gaps, in the
/// thread's rounding mode. An inner index at which all intervals of some neighbouring rows are zero is
/// skipped. A row of `out` does not depend on the others. The multiply-adds that were done, of which each
/// works on both ends.
std::int64_t interval_gemm(Isa isa, std::int64_t rows, std::int64_t inner, std::int64_t columns,
                           ConstIntervalRows a, const double* weights, IntervalRows out);

}  // namespace trainyard::kernels
