#include "isolation.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace screen {
namespace {

constexpr std::size_t largest_sample = 256;

/// The mean depth at which a search in a random binary tree of `rows` ends without success: c(n) of the article.
double mean_depth(std::size_t rows) {
  if (rows < 2) return 0.0;
  if (rows == 2) return 1.0;
  constexpr double euler = 0.5772156649015329;
  const auto n = static_cast<double>(rows);
  return 2.0 * (std::log(n - 1.0) + euler) - 2.0 * (n - 1.0) / n;
}

}  // namespace

std::vector<double> IsolationForest::fit(const Matrix& rows, const Fitting& fitting) {
  sample_ = std::min(largest_sample, rows.rows);
  columns_ = rows.columns;
  Draws draws(fitting.random);
  std::vector<std::size_t> order(rows.rows);
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (std::size_t tree = 0; tree < trees_; ++tree) {
    fitting.check();
    for (std::size_t i = 0; i < sample_; ++i) std::swap(order[i], order[i + draws.below(rows.rows - i)]);
    std::vector<std::size_t> sample(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(sample_));
    roots_.push_back(static_cast<std::int32_t>(column_.size()));
    grow(rows, sample, 0, sample_, 0, draws);
  }
  return score(rows, fitting);
}

void IsolationForest::grow(const Matrix& table, std::vector<std::size_t>& rows, std::size_t first,
                           std::size_t last, std::size_t depth, Draws& draws) {
  const auto deepest = static_cast<std::size_t>(std::ceil(std::log2(static_cast<double>(sample_))));
  const std::size_t node = column_.size();
  column_.push_back(-1);
  above_.push_back(0);
  cut_.push_back(static_cast<double>(depth) + mean_depth(last - first));
  if (last - first < 2 || depth >= deepest) return;
  // A column that is constant here cannot be cut: others are drawn until one can.
  std::vector<std::size_t> untried(table.columns);
  std::iota(untried.begin(), untried.end(), std::size_t{0});
  double least = 0.0, most = 0.0;
  std::size_t column = 0;
  while (least == most && !untried.empty()) {
    const std::size_t drawn = draws.below(untried.size());
    column = untried[drawn];
    untried[drawn] = untried.back();
    untried.pop_back();
    least = most = table.at(rows[first], column);
    for (std::size_t i = first; i < last; ++i) {
      least = std::min(least, table.at(rows[i], column));
      most = std::max(most, table.at(rows[i], column));
    }
  }
  if (least == most) return;
  const double cut =
      std::max(least, std::min(least + draws.uniform() * (most - least), std::nextafter(most, least)));
  const auto middle = std::partition(rows.begin() + static_cast<std::ptrdiff_t>(first),
                                     rows.begin() + static_cast<std::ptrdiff_t>(last),
                                     [&](std::size_t row) { return table.at(row, column) <= cut; });
  const auto border = static_cast<std::size_t>(middle - rows.begin());
  column_[node] = static_cast<std::int32_t>(column);
  cut_[node] = cut;
  grow(table, rows, first, border, depth + 1, draws);
  above_[node] = static_cast<std::int32_t>(column_.size());
  grow(table, rows, border, last, depth + 1, draws);
}

double IsolationForest::depth_of(std::span<const double> row, std::size_t root) const {
  std::size_t node = root;
  while (column_[node] >= 0)
    node = row[static_cast<std::size_t>(column_[node])] <= cut_[node]
               ? node + 1
               : static_cast<std::size_t>(above_[node]);
  return cut_[node];
}

std::vector<double> IsolationForest::score(const Matrix& rows, const Fitting& fitting) const {
  std::vector<double> depths(rows.rows, 0.0);
  // Tree after tree, so that one stays in the cache.
  for (const std::int32_t root : roots_) {
    fitting.check();
    for (std::size_t i = 0; i < rows.rows; ++i)
      depths[i] += depth_of(rows.row(i), static_cast<std::size_t>(root));
  }
  const double usual = mean_depth(sample_) * static_cast<double>(roots_.size());
  for (double& depth : depths) depth = usual > 0.0 ? std::exp2(-depth / usual) : 0.5;
  return depths;
}

void IsolationForest::keep(Archive& archive) {
  archive.number("sample", sample_);
  archive.number("columns", columns_);
  archive.list("column", column_);
  archive.list("above", above_);
  archive.list("cut", cut_);
  archive.list("roots", roots_);
  if (archive.loading()) check_nodes(archive);
}

void IsolationForest::check_nodes(Archive& archive) const {
  const std::size_t size = column_.size();
  if (above_.size() != size || cut_.size() != size) archive.fail("cut", "does not have one number a node");
  for (std::size_t i = 0; i < size; ++i) {
    if (column_[i] < 0) continue;
    const auto above = static_cast<std::size_t>(above_[i]);
    if (static_cast<std::size_t>(column_[i]) >= columns_ || above <= i + 1 || above >= size)
      archive.fail("column", "names nodes that are not there");
  }
  for (const std::int32_t root : roots_)
    if (static_cast<std::size_t>(root) >= size) archive.fail("roots", "names nodes that are not there");
}

}  // namespace screen
