// Rows of intervals. An interval [a, b] is kept as the pair (-a, b): both ends are then rounded outward by
// rounding up, and the same instructions serve a bound that is proven (rounding up) and one that is not (rounding to
// nearest).
#pragma once

namespace trainyard::kernels {

/// A row of intervals [-low[i], up[i]].
struct IntervalRows {
  double *low, *up;
};
struct ConstIntervalRows {
  const double *low, *up;
};

}  // namespace trainyard::kernels
