#include "distributions.hpp"

#include <algorithm>
#include <cmath>

namespace screen {
namespace {

/// The third standardised moment, without a correction for few rows; 0 for a column that is constant but for rounding.
double skewness_of(const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  double mean = 0.0, second = 0.0, third = 0.0;
  for (const double value : values) mean += value / count;
  for (const double value : values) {
    const double difference = value - mean;
    second += difference * difference / count;
    third += difference * difference * difference / count;
  }
  const double resolution = 1e-15 * std::abs(mean);
  return second <= resolution * resolution ? 0.0 : third / std::pow(second, 1.5);
}

/// Returns the bin of a number, the last one for what lies beyond; an edge is of the bin above it.
std::size_t bin_of(double value, double begin, double width, std::size_t bins) {
  const auto edge = [&](std::size_t bin) { return begin + static_cast<double>(bin) * width; };
  auto bin =
      static_cast<std::size_t>(std::clamp((value - begin) / width, 0.0, static_cast<double>(bins - 1)));
  while (bin > 0 && value < edge(bin)) --bin;  // the quotient is rounded
  while (bin + 1 < bins && value >= edge(bin + 1)) ++bin;
  return bin;
}

}  // namespace

std::vector<double> Histograms::fit(const Matrix& rows, const Fitting& fitting) {
  begin_.resize(rows.columns);
  width_.resize(rows.columns);
  surprise_ = Matrix(rows.columns, bins_);
  for (std::size_t j = 0; j < rows.columns; ++j) {
    fitting.check();
    const std::vector<double> values = rows.column(j);
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    const bool constant = *least == *most;
    begin_[j] = constant ? *least - 0.5 : *least;
    width_[j] = (constant ? 1.0 : *most - *least) / static_cast<double>(bins_);
    std::vector<double> counts(bins_, 0.0);
    for (const double value : values) counts[bin_of(value, begin_[j], width_[j], bins_)] += 1.0;
    for (std::size_t bin = 0; bin < bins_; ++bin)
      surprise_.row(j)[bin] = -std::log2(counts[bin] / static_cast<double>(rows.rows) / width_[j] + 0.1);
  }
  return score(rows, fitting);
}

std::vector<double> Histograms::score(const Matrix& rows, const Fitting&) const {
  std::vector<double> scores(rows.rows, 0.0);
  std::vector<double> largest(rows.columns);
  for (std::size_t j = 0; j < rows.columns; ++j)
    largest[j] = *std::max_element(surprise_.row(j).begin(), surprise_.row(j).end());
  for (std::size_t i = 0; i < rows.rows; ++i)
    for (std::size_t j = 0; j < rows.columns; ++j) {
      const double place = (rows.at(i, j) - begin_[j]) / width_[j];
      const auto end = static_cast<double>(bins_);
      // Up to half a bin outside is of the bin at the edge; what lies farther off is as odd as the emptiest bin.
      const bool inside = place >= -0.5 && place <= end + 0.5;
      scores[i] += inside ? surprise_.at(j, bin_of(rows.at(i, j), begin_[j], width_[j], bins_)) : largest[j];
    }
  return scores;
}

void Histograms::keep(Archive& archive) {
  archive.list("begin", begin_);
  archive.list("width", width_);
  archive.matrix("surprise", surprise_);
  if (archive.loading() &&
      (surprise_.columns != bins_ || surprise_.rows != begin_.size() || begin_.size() != width_.size()))
    archive.fail("surprise", "does not have one row a column");
}

std::vector<double> Tails::fit(const Matrix& rows, const Fitting& fitting) {
  sorted_ = Matrix(rows.columns, rows.rows);
  skewness_.resize(rows.columns);
  for (std::size_t j = 0; j < rows.columns; ++j) {
    fitting.check();
    std::vector<double> values = rows.column(j);
    skewness_[j] = skewness_of(values);
    std::sort(values.begin(), values.end());
    std::copy(values.begin(), values.end(), sorted_.row(j).begin());
  }
  return score(rows, fitting);
}

std::vector<double> Tails::score(const Matrix& rows, const Fitting& fitting) const {
  std::vector<double> scores(rows.rows, 0.0), lefts(rows.rows, 0.0), rights(rows.rows, 0.0),
      skews(rows.rows, 0.0);
  const auto total = static_cast<double>(sorted_.columns);
  // Column after column, so that one stays in the cache.
  for (std::size_t j = 0; j < rows.columns; ++j) {
    fitting.check();
    const auto values = sorted_.row(j);
    for (std::size_t i = 0; i < rows.rows; ++i) {
      const auto no_larger = std::upper_bound(values.begin(), values.end(), rows.at(i, j)) - values.begin();
      const auto no_smaller = values.end() - std::lower_bound(values.begin(), values.end(), rows.at(i, j));
      const double left = -std::log(std::max(static_cast<double>(no_larger), 1.0) / total);
      const double right = -std::log(std::max(static_cast<double>(no_smaller), 1.0) / total);
      const double skewed = (skewness_[j] <= 0.0 ? left : 0.0) + (skewness_[j] >= 0.0 ? right : 0.0);
      lefts[i] += left;
      rights[i] += right;
      skews[i] += skewed;
      scores[i] +=
          rule_ == Rule::copod ? std::max(skewed, (left + right) / 2.0) : std::max({left, right, skewed});
    }
  }
  for (std::size_t i = 0; i < rows.rows && rule_ == Rule::ecod_sums; ++i)
    scores[i] = std::max({lefts[i], rights[i], skews[i]});
  return scores;
}

void Tails::keep(Archive& archive) {
  archive.matrix("sorted", sorted_);
  archive.list("skewness", skewness_);
  if (archive.loading() && skewness_.size() != sorted_.rows)
    archive.fail("skewness", "does not have one number a column");
}

}  // namespace screen
