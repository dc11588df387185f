#include "curve.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

namespace ops {
namespace {

constexpr std::array<std::int64_t, 8> widths = {1, 4, 8, 16, 24, 32, 64, 128};

double ceiling(std::int64_t x, std::int64_t width) {
  const std::int64_t steps = (x + width - 1) / width;
  return static_cast<double>(steps);
}

/// Solves a symmetric system of at most three equations; nothing where it is singular.
template <std::size_t N>
std::optional<std::array<double, N>> solved(std::array<std::array<double, N + 1>, N> rows) {
  for (std::size_t i = 0; i < N; ++i) {
    std::size_t pivot = i;
    for (std::size_t j = i + 1; j < N; ++j)
      if (std::abs(rows[j][i]) > std::abs(rows[pivot][i])) pivot = j;
    std::swap(rows[i], rows[pivot]);
    if (std::abs(rows[i][i]) < 1e-12) return std::nullopt;
    for (std::size_t j = 0; j < N; ++j) {
      if (j == i) continue;
      const double factor = rows[j][i] / rows[i][i];
      for (std::size_t k = i; k <= N; ++k) rows[j][k] -= factor * rows[i][k];
    }
  }
  std::array<double, N> solution{};
  for (std::size_t i = 0; i < N; ++i) solution[i] = rows[i][N] / rows[i][i];
  return solution;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Relative errors beyond this many deviations count by their size, not by its square (Huber).
constexpr double tail = 1.5;

std::vector<double> errors_of(const Curve& curve, const Staircase& stairs) {
  std::vector<double> errors;
  for (const Point& each : curve) errors.push_back(std::abs(stairs.at(each.x) / each.seconds - 1.0));
  return errors;
}

/// Returns the standard deviation of errors of which some are outliers: by their median, as for normal ones.
double deviation_of(const std::vector<double>& errors) {
  return std::max(1e-4, 1.4826 * median(errors));
}

/// Fits base and heights by least relative errors, squares that are weighted anew by how far off a point is.
template <std::size_t N>
std::optional<Staircase> fitted(const Curve& curve, const std::array<std::int64_t, N - 1>& of) {
  std::vector<double> weight(curve.size(), 1.0);
  Staircase stairs;
  for (int round = 0; round < 12; ++round) {
    std::array<std::array<double, N + 1>, N> rows{};
    for (std::size_t i = 0; i < curve.size(); ++i) {
      std::array<double, N + 1> term{};  // divided by the seconds, so that errors are relative
      term[0] = 1.0 / curve[i].seconds;
      for (std::size_t k = 1; k < N; ++k) term[k] = ceiling(curve[i].x, of[k - 1]) / curve[i].seconds;
      term[N] = 1.0;
      for (std::size_t a = 0; a < N; ++a)
        for (std::size_t b = 0; b <= N; ++b) rows[a][b] += weight[i] * term[a] * term[b];
    }
    const double scale = rows[0][0];  // seconds are small numbers, their squares are tiny
    for (auto& row : rows)
      for (double& each : row) each /= scale;
    const auto found = solved<N>(rows);
    if (!found) return std::nullopt;
    stairs = {.base = (*found)[0], .steps = {}, .error = 0.0};
    for (std::size_t k = 1; k < N; ++k) stairs.steps.push_back({of[k - 1], (*found)[k]});
    const std::vector<double> errors = errors_of(curve, stairs);
    const double deviation = deviation_of(errors);
    for (std::size_t i = 0; i < curve.size(); ++i)
      weight[i] = std::min(1.0, tail * deviation / std::max(errors[i], 1e-12));
  }
  for (const Staircase::Step& each : stairs.steps)
    if (each.height <= 0.0) return std::nullopt;
  for (const double each : errors_of(curve, stairs)) stairs.error += each;
  stairs.error /= static_cast<double>(curve.size());
  return stairs;
}

/// Minus the logarithm of the likelihood of errors with this deviation, with half the logarithm of the number of points for
/// each height (Schwarz), and as much again and more for a width that was chosen among many.
double criterion(const std::vector<double>& errors, double deviation, const Staircase& stairs) {
  double sum = 0.0;
  for (const double each : errors) {
    const double z = each / deviation;
    sum += z <= tail ? 0.5 * z * z : tail * (z - 0.5 * tail);
  }
  double parameters = 0.0;
  for (const Staircase::Step& each : stairs.steps) parameters += each.width == 1 ? 1.0 : 2.5;
  return sum + 0.5 * std::log(static_cast<double>(errors.size())) * parameters;
}

/// The median of up to three points from `first` on, or before it.
double level_from(const Curve& curve, std::size_t first) {
  std::vector<double> values;
  for (std::size_t i = first; i < std::min(curve.size(), first + 3); ++i) values.push_back(curve[i].seconds);
  return median(values);
}
double level_before(const Curve& curve, std::size_t end) {
  std::vector<double> values;
  for (std::size_t i = end - std::min<std::size_t>(end, 3); i < end; ++i) values.push_back(curve[i].seconds);
  return median(values);
}

}  // namespace

double Staircase::at(std::int64_t x) const {
  double seconds = base;
  for (const Step& each : steps) seconds += each.height * ceiling(x, each.width);
  return seconds;
}

Staircase fit_staircase(const Curve& curve) {
  if (curve.size() < 8) return {};
  std::vector<Staircase> all;
  const auto consider = [&](std::optional<Staircase> stairs) {
    if (stairs) all.push_back(*std::move(stairs));
  };
  for (std::size_t i = 0; i < widths.size(); ++i) {
    if (2 * widths[i] > curve.back().x) break;  // of which no two steps are seen
    consider(fitted<2>(curve, {widths[i]}));
    for (std::size_t j = i + 1; j < widths.size() && 2 * widths[j] <= curve.back().x; ++j)
      consider(fitted<3>(curve, {widths[i], widths[j]}));
  }
  double deviation = std::numeric_limits<double>::infinity();
  for (const Staircase& each : all) deviation = std::min(deviation, deviation_of(errors_of(curve, each)));
  Staircase best;
  double least = std::numeric_limits<double>::infinity();
  for (const Staircase& each : all)
    if (const double value = criterion(errors_of(curve, each), deviation, each); value < least) {
      least = value;
      best = each;
    }
  constexpr double most_error = 0.1;  // what is further off explains nothing: areas grow as squares
  return best.error <= most_error ? best : Staircase();
}

std::vector<Jump> jumps_of(const Curve& curve, const Staircase& fit, double threshold) {
  std::vector<Jump> jumps;
  for (std::size_t i = 1; i < curve.size(); ++i) {
    const double ratio = curve[i].seconds / curve[i - 1].seconds;
    if (ratio <= 1.0 + threshold || level_from(curve, i) <= (1.0 + threshold) * level_before(curve, i))
      continue;
    const double expected = fit.steps.empty() ? 1.0 : fit.at(curve[i].x) / fit.at(curve[i - 1].x);
    jumps.push_back({curve[i].x, ratio, ratio <= 1.3 * expected});
  }
  return jumps;
}

std::vector<Inversion> inversions_of(const Curve& curve) {
  std::vector<Inversion> found;
  for (std::size_t j = 1; j < curve.size(); ++j) {
    if (curve[j - 1].seconds <= 1.05 * curve[j].seconds ||
        level_before(curve, j) <= 1.05 * level_from(curve, j))
      continue;
    std::size_t i = j - 1;
    while (i > 0 && curve[i - 1].seconds > 1.05 * curve[j].seconds) --i;
    found.push_back({curve[i].x, curve[j].x, curve[j - 1].seconds / curve[j].seconds});
  }
  return found;
}

}  // namespace ops
