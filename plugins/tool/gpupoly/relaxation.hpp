// Lines around max(x, others): of a relu, whose other is 0, and of a max-pool, whose others are the rest of its
// window (DeepPoly, POPL 2019, sections 4.1 and 4.2). Like bounds.cpp, for any rounding mode.
#pragma once

#include <cstdint>
#include <vector>

namespace gpupoly {

/// alpha x - kappa <= y <= lambda x + mu, x being element `from` of the layer below.
struct Line {
  std::int64_t from = 0;
  double alpha = 0.0, kappa = 0.0;  ///< kappa: the lower line's constant, negated
  double lambda = 0.0, mu = 0.0;
};

/// max(x, 0) for x in [-low, up]. `area`: the lower line is x where up > low, which leaves the smaller area; else
/// always 0. Whatever lambda came out of rounding, mu is large enough for it where the thread rounds up.
Line relu_line(double low, double up, bool area);

/// The largest of some elements of [-low[i], up[i]].
Line max_line(const std::vector<std::int64_t>& candidates, const std::vector<double>& low,
              const std::vector<double>& up, bool area);

}  // namespace gpupoly
