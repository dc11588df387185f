#include "normalization.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>

namespace gpupoly {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// What the program may be off by; zeros of the real function.
struct Errors {
  double center =
      0.0;  ///< of an element less the mean, and of what follows, in parts of its size and the mean size
  double variance = 0.0;  ///< and of epsilon, which is added to it
  double least = 0.0;     ///< of any result: what underflows
};

/// Variances by sums of squares less that of the mean are the farthest off (Chan, Golub, LeVeque, The American
/// Statistician 37, 1983): by parts of the mean square, not of the variance.
Errors errors_of(const std::vector<double>& sizes, double epsilon, double unit) {
  if (unit == 0.0) return {};
  const auto n = static_cast<double>(sizes.size());
  double squares = 0.0;
  for (const double size : sizes) squares += size * size;
  const double nu = (2.0 * n + 8.0) * unit, gamma = nu <= 0.25 ? nu * (1.0 + 2.0 * nu) : infinity;
  if (!(4.0 * squares < FLT_MAX)) return {.center = infinity, .variance = infinity};
  return {.center = 2.0 * gamma,
          .variance = 6.0 * gamma * (squares / n) + 4.0 * unit * epsilon + n * FLT_MIN,
          .least = 8.0 * FLT_MIN};
}

/// One group; every expression only grows when its operations are rounded up, and what has to be rounded down is
/// kept negated.
class Group {
 public:
  Group(const double* low, const double* up, std::int64_t size, double epsilon, double unit)
      : low_(low), up_(up), n_(static_cast<double>(size)), epsilon_(epsilon) {
    std::vector<double> sizes;
    double lows = 0.0, ups = 0.0;
    for (std::int64_t i = 0; i < size; ++i) {
      sizes.push_back(std::max(std::abs(low[i]), std::abs(up[i])));
      mean_size_ += sizes.back();
      lows += low[i];
      ups += up[i];
    }
    mean_size_ /= n_;
    error_ = errors_of(sizes, epsilon, unit);
    for (std::int64_t i = 0; i < size; ++i) {
      // The largest of x_i - x_i / n - (sum of the others) / n, and of its negative.
      up_less_.push_back(up[i] + ((lows - low[i]) - up[i]) / n_);
      low_less_.push_back(low[i] + ((ups - up[i]) - low[i]) / n_);
      const double most = std::max(up_less_.back(), low_less_.back()),
                   least = std::max({-up_less_.back(), -low_less_.back(), 0.0});
      most_.push_back(most * most);
      least_.push_back((-least) * least);
      all_most_ += most_.back();
      all_least_ += least_.back();
    }
  }

  double up(std::int64_t i) const { return end(i, up_less_[at(i)], sizes(i)); }
  /// Negated. The function is odd.
  double low(std::int64_t i) const { return end(i, low_less_[at(i)], sizes(i)); }

 private:
  static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
  double sizes(std::int64_t i) const { return std::max(std::abs(low_[i]), std::abs(up_[i])) + mean_size_; }

  /// The largest of c / sqrt((c^2 + S) / n + epsilon) for c up to `most`, S being the squares of the others: it rises
  /// with c, and with S it falls where c is above 0 and rises below.
  double end(std::int64_t i, double most, double sizes) const {
    const double others_least = std::min(all_least_ - least_[at(i)], 0.0),
                 rest = others_least / n_ + error_.variance - epsilon_;  // negated
    if (!(rest < 0.0)) return infinity;
    const double program =
        error_.center * sizes / below(all_least_ / n_ + error_.variance - epsilon_) + error_.least;
    if (most > 0.0) return most / below((-most) * most / n_ + rest) + program;
    const double others_most = all_most_ - most_[at(i)];
    return most / std::sqrt((most * most + others_most) / n_ + error_.variance + epsilon_) + program;
  }

  /// No more than the root of the negated number.
  static double below(double negated) { return std::nextafter(std::sqrt(-negated), 0.0); }

  const double *low_, *up_;
  double n_, epsilon_, mean_size_ = 0.0;
  Errors error_;
  std::vector<double> up_less_, low_less_;  ///< less the mean
  std::vector<double> most_, least_;        ///< squares of that; of `least_` negated
  double all_most_ = 0.0, all_least_ = 0.0;
};

}  // namespace

Bounds normalized(const Bounds& x, std::int64_t group, double epsilon, double unit) {
  Bounds y;
  for (std::size_t begin = 0; begin < x.up.size(); begin += static_cast<std::size_t>(group)) {
    const Group one(x.low.data() + begin, x.up.data() + begin, group, epsilon, unit);
    for (std::int64_t i = 0; i < group; ++i) {
      y.low.push_back(one.low(i));
      y.up.push_back(one.up(i));
    }
  }
  return y;
}

}  // namespace gpupoly
