#include "boundary.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/core/grad_mode.h>

#include "kernel_columns.hpp"
#include "kernels/cpu/for_each_isa.hpp"

namespace screen {
namespace {

/// Sequential minimal optimisation of min 1/2 a'Ka, 0 <= a <= 1, sum a = nu n, with pairs chosen by their second-order
/// gain (Fan, Chen & Lin, JMLR 2005).
class Solver {
 public:
  Solver(KernelColumns& kernel, double nu, const Fitting& fitting) : kernel_(kernel), fitting_(fitting) {
    const std::size_t rows = kernel.rows();
    alpha_.assign(rows, 0.0);
    gradient_.assign(rows, 0.0);
    double left = nu * static_cast<double>(rows);
    for (std::size_t i = 0; i < rows && left > 0.0; ++i) {
      alpha_[i] = std::min(1.0, left);
      left -= alpha_[i];
      if (i % 64 == 0) fitting.check();
      add(i, alpha_[i]);
    }
  }

  void solve() {
    const std::size_t most = std::max<std::size_t>(1'000'000, 100 * alpha_.size());
    for (std::size_t round = 0; round < most && step(); ++round)
      if (round % 256 == 0) fitting_.check();
  }

  const std::vector<double>& alpha() const { return alpha_; }
  const std::vector<double>& gradient() const { return gradient_; }

  /// Returns the value of the boundary: the mean gradient of the rows on it, or the middle of what it can be.
  double rho() const {
    double sum = 0.0, count = 0.0;
    double low = -std::numeric_limits<double>::infinity(), high = -low;
    for (std::size_t i = 0; i < alpha_.size(); ++i)
      if (alpha_[i] <= 0.0) {
        high = std::min(high, gradient_[i]);
      } else if (alpha_[i] >= 1.0) {
        low = std::max(low, gradient_[i]);
      } else {
        sum += gradient_[i];
        count += 1.0;
      }
    if (count > 0.0) return sum / count;
    return std::isfinite(low) && std::isfinite(high) ? (low + high) / 2.0 : std::isfinite(low) ? low : high;
  }

 private:
  void add(std::size_t i, double change) {
    const float* const column = kernel_.column(i);
    for (std::size_t k = 0; k < gradient_.size(); ++k)
      gradient_[k] += change * static_cast<double>(column[k]);
  }

  /// Moves weight between two rows; false where none gains more than the tolerance.
  bool step() {
    constexpr double tolerance = 1e-4, least_curvature = 1e-12;
    std::size_t up = alpha_.size(), down = alpha_.size();
    double least = std::numeric_limits<double>::infinity(), most = -least, best = 0.0;
    for (std::size_t i = 0; i < alpha_.size(); ++i)
      if (alpha_[i] < 1.0 && gradient_[i] < least) least = gradient_[up = i];
    if (up == alpha_.size()) return false;
    const float* const column = kernel_.column(up);
    for (std::size_t i = 0; i < alpha_.size(); ++i) {
      if (alpha_[i] <= 0.0) continue;
      most = std::max(most, gradient_[i]);
      const double gap = gradient_[i] - least;
      if (gap <= 0.0) continue;
      const double gain = gap * gap / std::max(least_curvature, 2.0 - 2.0 * static_cast<double>(column[i]));
      if (gain > best) {
        best = gain;
        down = i;
      }
    }
    if (down == alpha_.size() || most - least < tolerance) return false;
    const double curvature = std::max(least_curvature, 2.0 - 2.0 * static_cast<double>(column[down]));
    const double change = std::min({(gradient_[down] - least) / curvature, 1.0 - alpha_[up], alpha_[down]});
    alpha_[up] += change;
    alpha_[down] -= change;
    add(up, change);
    add(down, -change);
    return true;
  }

  KernelColumns& kernel_;
  const Fitting& fitting_;
  std::vector<double> alpha_, gradient_;
};

/// Adds to each of `count` sums the squared difference to one number. Compiled for what the processor has.
TRAINYARD_FOR_EACH_ISA void add_squares(const float* numbers, float number, float* sums, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const float difference = numbers[i] - number;
    sums[i] += difference * difference;
  }
}

}  // namespace

std::vector<double> Boundary::fit(const Matrix& rows, const Fitting& fitting) {
  const at::NoGradGuard no_grad;
  gamma_ = 1.0 / static_cast<double>(rows.columns);
  mean_.assign(rows.columns, 0.0);
  for (std::size_t i = 0; i < rows.rows; ++i)
    for (std::size_t j = 0; j < rows.columns; ++j) mean_[j] += rows.at(i, j) / static_cast<double>(rows.rows);
  KernelColumns kernel(rows, mean_, gamma_, fitting);
  Solver solver(kernel, nu_, fitting);
  solver.solve();
  rho_ = solver.rho();
  take_support(rows, solver.alpha());
  std::vector<double> scores(rows.rows);
  for (std::size_t i = 0; i < rows.rows; ++i) scores[i] = rho_ - solver.gradient()[i];
  return scores;
}

void Boundary::take_support(const Matrix& rows, const std::vector<double>& alpha) {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < rows.rows; ++i)
    if (alpha[i] > 0.0) {
      places.push_back(i);
      weights_.push_back(alpha[i]);
    }
  support_ = places.size();
  by_column_.resize(rows.columns * support_);
  for (std::size_t j = 0; j < rows.columns; ++j)
    for (std::size_t s = 0; s < support_; ++s)
      by_column_[j * support_ + s] = static_cast<float>(rows.at(places[s], j) - mean_[j]);
}

std::vector<double> Boundary::score(const Matrix& rows, const Fitting& fitting) const {
  constexpr std::size_t tile = 1024;
  std::vector<double> scores(rows.rows, rho_);
  std::vector<float> sums(tile);
  for (std::size_t i = 0; i < rows.rows; ++i) {
    if (i % 64 == 0) fitting.check();
    for (std::size_t first = 0; first < support_; first += tile) {
      const std::size_t count = std::min(tile, support_ - first);
      std::fill_n(sums.begin(), count, 0.0F);
      for (std::size_t j = 0; j < rows.columns; ++j)
        add_squares(by_column_.data() + j * support_ + first, static_cast<float>(rows.at(i, j) - mean_[j]),
                    sums.data(), count);
      for (std::size_t s = 0; s < count; ++s)
        scores[i] -=
            weights_[first + s] * static_cast<double>(std::exp(-static_cast<float>(gamma_) * sums[s]));
    }
  }
  return scores;
}

void Boundary::keep(Archive& archive) {
  archive.number("gamma", gamma_);
  archive.number("rho", rho_);
  archive.list("mean", mean_);
  archive.number("support", support_);
  archive.list("by_column", by_column_);
  archive.list("weights", weights_);
  if (archive.loading() && (weights_.size() != support_ || by_column_.size() != support_ * mean_.size()))
    archive.fail("weights", "does not have one number a support vector");
}

}  // namespace screen
