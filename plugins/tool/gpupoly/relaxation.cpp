#include "relaxation.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace gpupoly {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// max(x, others) for x in [-low, up], none of the others above `rest` <= up and one of them no less than
/// -floor.
Line line(double low, double up, double rest, double floor, bool area) {
  if (-low >= rest) return {.alpha = 1.0, .lambda = 1.0};
  Line line;
  line.lambda = std::clamp((up - rest) / (up + low), 0.0, 1.0);
  if (!std::isfinite(up + low)) line.lambda = 0.0;
  // The upper line has to be above y at both ends of x.
  const double at_low = std::max(-low, rest) + line.lambda * low, at_up = up + (-line.lambda) * up;
  line.mu = line.lambda > 0.0 ? std::max(at_low, at_up) : up;
  const double most = std::min(low, floor);  // y is no less than -most
  if (area && up + most > low + (-most))
    line.alpha = 1.0;
  else
    line.kappa = most;
  return line;
}

}  // namespace

Line relu_line(double low, double up, bool area) {
  if (up <= 0.0) return {};
  return line(low, up, 0.0, 0.0, area);
}

Line max_line(const std::vector<std::int64_t>& candidates, const std::vector<double>& low,
              const std::vector<double>& up, bool area) {
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  std::int64_t best = candidates.front();
  double floor = infinity, rest = -infinity;
  for (const std::int64_t i : candidates) {
    if (up[at(i)] > up[at(best)]) best = i;
    floor = std::min(floor, low[at(i)]);
  }
  for (const std::int64_t i : candidates)
    if (i != best) rest = std::max(rest, up[at(i)]);
  Line result = line(low[at(best)], up[at(best)], rest, floor, area);
  result.from = best;
  return result;
}

}  // namespace gpupoly
