#include "components.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_eigh.h>
#include <ATen/ops/mm.h>

namespace screen {

std::vector<double> Components::fit(const Matrix& rows, const Fitting& fitting) {
  const at::NoGradGuard no_grad;
  const std::size_t columns = rows.columns;
  const auto count = static_cast<double>(rows.rows);
  mean_.assign(columns, 0.0);
  deviation_.assign(columns, 0.0);
  at::Tensor standard =
      at::empty({static_cast<std::int64_t>(rows.rows), static_cast<std::int64_t>(columns)}, at::kDouble);
  auto* const out = standard.mutable_data_ptr<double>();
  for (std::size_t j = 0; j < columns; ++j) {
    for (std::size_t i = 0; i < rows.rows; ++i) mean_[j] += rows.at(i, j) / count;
    for (std::size_t i = 0; i < rows.rows; ++i) {
      const double difference = rows.at(i, j) - mean_[j];
      deviation_[j] += difference * difference / count;
    }
    deviation_[j] = deviation_[j] > 0.0 ? std::sqrt(deviation_[j]) : 1.0;
    for (std::size_t i = 0; i < rows.rows; ++i)
      out[i * columns + j] = (rows.at(i, j) - mean_[j]) / deviation_[j];
  }
  fitting.check();
  const auto [values, vectors] = at::linalg_eigh(at::mm(standard.t(), standard), "L");
  const at::Tensor ascending = values.contiguous(), by_row = vectors.t().contiguous();
  const double* const variance = ascending.const_data_ptr<double>();
  double sum = 0.0;
  for (std::size_t j = 0; j < columns; ++j) sum += std::max(variance[j], 0.0);
  // Along directions of no variance, as those of constant columns, there is nothing to compare with.
  constexpr double none = 1e-12;
  std::vector<double> kept;
  for (std::size_t j = columns; j-- > 0;) {
    if (!(variance[j] > none * sum)) continue;
    share_.push_back(variance[j] / sum);
    const double* const direction = by_row.const_data_ptr<double>() + j * columns;
    const double* const largest = std::max_element(
        direction, direction + columns, [](double a, double b) { return std::abs(a) < std::abs(b); });
    for (std::size_t i = 0; i < columns; ++i) kept.push_back(*largest < 0.0 ? -direction[i] : direction[i]);
  }
  directions_.rows = share_.size();
  directions_.columns = columns;
  directions_.values = std::move(kept);
  return score(rows, fitting);
}

std::vector<double> Components::score(const Matrix& rows, const Fitting&) const {
  std::vector<double> scores(rows.rows, 0.0), standard(rows.columns);
  for (std::size_t i = 0; i < rows.rows; ++i) {
    double square = 0.0;
    for (std::size_t j = 0; j < rows.columns; ++j) {
      standard[j] = (rows.at(i, j) - mean_[j]) / deviation_[j];
      square += standard[j] * standard[j];
    }
    for (std::size_t c = 0; c < directions_.rows; ++c) {
      double product = 0.0;
      for (std::size_t j = 0; j < rows.columns; ++j) product += standard[j] * directions_.at(c, j);
      scores[i] += std::sqrt(std::max(0.0, square + 1.0 - 2.0 * product)) / share_[c];
    }
  }
  return scores;
}

void Components::keep(Archive& archive) {
  archive.list("mean", mean_);
  archive.list("deviation", deviation_);
  archive.matrix("directions", directions_);
  archive.list("share", share_);
  if (archive.loading() && (share_.size() != directions_.rows || mean_.size() != directions_.columns ||
                            deviation_.size() != mean_.size()))
    archive.fail("share", "does not have one number a direction");
}

}  // namespace screen
