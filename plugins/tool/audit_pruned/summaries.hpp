// The two numbers by which Liebenwein et al., "Lost in Pruning" (MLSys 2021), judge a family of pruned networks.
#pragma once

#include <span>

namespace audit {

/// A pruned network: the share of the parent's parameters that it does without, and a number of it.
struct AtRatio {
  double ratio = 0.0, value = 0.0;
};

/// Returns the prune potential: the largest ratio whose error is at most `delta` above the parent's; 0 where none is. A
/// smaller ratio that fails does not matter.
double potential(double parents_error, double delta, std::span<const AtRatio> errors);

/// A line through the origin, and the ends of the 95 % interval of its slope; the ends are NaN for fewer than two points.
struct Slope {
  double slope = 0.0, low = 0.0, high = 0.0;
};

/// Fits it by least squares. The interval is Student's, of points whose deviations from the line are independent.
Slope slope_through_origin(std::span<const AtRatio> points);

}  // namespace audit
