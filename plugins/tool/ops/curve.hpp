// Reads patterns from times over a dimension of which each next value is more work: staircases, jumps, and places where
// more work takes less time. The detectors know no width beforehand.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ops {

struct Point {
  std::int64_t x = 0;
  double seconds = 0.0;
};
/// Points in increasing order of x.
using Curve = std::vector<Point>;

/// A sum of steps: seconds = base + sum of height * ceil(x / width). A width of 1 is a line.
struct Staircase {
  struct Step {
    std::int64_t width = 1;
    double height = 0.0;
  };
  double base = 0.0;
  std::vector<Step> steps;  ///< at most two, the narrower first
  double error = 0.0;       ///< mean of |seconds / fit - 1|

  double at(std::int64_t x) const;
  /// Returns the largest width, which is 1 where there is no staircase.
  std::int64_t width() const { return steps.empty() ? 1 : steps.back().width; }
};

/// Returns the staircase that explains a curve best, of widths 1, 4, 8, 16, 24, 32, 64 and 128, by relative errors, of
/// which outliers count less; a second width, or any but 1, must explain much more than it could by chance (Schwarz's criterion).
Staircase fit_staircase(const Curve& curve);

/// A jump from one point to the next that stays: the median of three points from `x` on over that of the three before.
struct Jump {
  std::int64_t x = 0;      ///< where it is dearer
  double ratio = 1.0;      ///< seconds at x over those before
  bool explained = false;  ///< by the staircase, within 30 %
};
/// Returns jumps of more than `threshold`, 0.1 for a tenth.
std::vector<Jump> jumps_of(const Curve& curve, const Staircase& fit, double threshold);

/// Less work that takes more time.
struct Inversion {
  std::int64_t from = 0;  ///< the least x that takes more than 1.05 times what `to` takes
  std::int64_t to = 0;    ///< where it becomes cheaper
  double ratio = 1.0;     ///< seconds just before `to` over those at it
};
std::vector<Inversion> inversions_of(const Curve& curve);

}  // namespace ops
