#include "forest.hpp"

#include <algorithm>
#include <cmath>

namespace screen {
namespace {

constexpr std::size_t most_bins = 64;

/// Returns the upper ends of bins that hold about as many rows each; the last bin has none.
std::vector<double> ends_of_bins(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  std::vector<double> ends;
  for (std::size_t bin = 1; bin < most_bins; ++bin) {
    const std::size_t place = bin * values.size() / most_bins;
    if (place == 0 || values[place - 1] == values.back()) continue;
    // Between two numbers, so that rows near to one of the table fall to its side.
    const double next = *std::upper_bound(values.begin(), values.end(), values[place - 1]);
    const double end = values[place - 1] + (next - values[place - 1]) / 2.0;
    if (ends.empty() || end > ends.back()) ends.push_back(end);
  }
  return ends;
}

struct Bin {
  double sum = 0.0;
  std::uint32_t count = 0;
};

}  // namespace

/// What all trees of a forest are grown from, and the rows of the one that is being grown.
struct Forest::Growing {
  const std::vector<double>& targets;
  std::vector<std::vector<double>> ends;  ///< of each column's bins
  std::vector<std::uint8_t> bins;         ///< rows x columns
  std::size_t columns;
  Draws draws;
  std::vector<std::uint32_t> rows;  ///< drawn with replacement
};

void Forest::fit(const Matrix& rows, const std::vector<double>& targets, const Fitting& fitting) {
  Growing growing{targets, {}, {}, rows.columns, Draws(fitting.random), {}};
  growing.bins.resize(rows.rows * rows.columns);
  for (std::size_t j = 0; j < rows.columns; ++j) {
    fitting.check();
    growing.ends.push_back(ends_of_bins(rows.column(j)));
    const std::vector<double>& ends = growing.ends.back();
    for (std::size_t i = 0; i < rows.rows; ++i)
      growing.bins[i * rows.columns + j] =
          static_cast<std::uint8_t>(std::lower_bound(ends.begin(), ends.end(), rows.at(i, j)) - ends.begin());
  }
  growing.rows.resize(rows.rows);
  for (std::size_t tree = 0; tree < trees_; ++tree) {
    fitting.check();
    for (std::uint32_t& row : growing.rows) row = static_cast<std::uint32_t>(growing.draws.below(rows.rows));
    grow_tree(growing);
  }
}

void Forest::grow_tree(Growing& growing) {
  struct Part {
    std::size_t node, first, last;
  };
  const auto add = [&] {
    column_.push_back(-1);
    below_.push_back(0);
    cut_.push_back(0.0);
    return column_.size() - 1;
  };
  std::vector<Part> parts = {{add(), 0, growing.rows.size()}};
  roots_.push_back(static_cast<std::int32_t>(parts.front().node));
  while (!parts.empty()) {
    const Part part = parts.back();
    parts.pop_back();
    std::size_t border = 0;
    if (!cut_node(growing, part.node, part.first, part.last, border)) continue;
    const std::size_t below = add(), above = add();
    below_[part.node] = static_cast<std::int32_t>(below);
    parts.push_back({below, part.first, border});
    parts.push_back({above, border, part.last});
  }
}

bool Forest::cut_node(Growing& growing, std::size_t node, std::size_t first, std::size_t last,
                      std::size_t& border) {
  double sum = 0.0;
  for (std::size_t i = first; i < last; ++i) sum += growing.targets[growing.rows[i]];
  const auto size = static_cast<double>(last - first);
  cut_[node] = sum / size;
  // Leaves of one row are what the order of the scores is kept by (LOF on mnist: Spearman 0.81; of two rows 0.77).
  if (last - first < 2) return false;
  double best = sum * sum / size * (1.0 + 1e-12) + 1e-300;
  std::size_t best_column = growing.columns, best_bin = 0;
  Bin bins[most_bins];
  for (std::size_t column = 0; column < growing.columns; ++column) {
    std::fill_n(bins, growing.ends[column].size() + 1, Bin());
    std::size_t least = most_bins, most = 0;
    for (std::size_t i = first; i < last; ++i) {
      const std::size_t place = growing.bins[growing.rows[i] * growing.columns + column];
      bins[place].sum += growing.targets[growing.rows[i]];
      ++bins[place].count;
      least = std::min(least, place);
      most = std::max(most, place);
    }
    double below = 0.0;
    std::size_t rows_below = 0;
    for (std::size_t b = least; b < most; ++b) {
      if (bins[b].count == 0) continue;
      below += bins[b].sum;
      rows_below += bins[b].count;
      const double gain = below * below / static_cast<double>(rows_below) +
                          (sum - below) * (sum - below) / static_cast<double>(last - first - rows_below);
      if (gain > best) {
        best = gain;
        best_column = column;
        best_bin = b;
      }
    }
  }
  if (best_column == growing.columns) return false;
  column_[node] = static_cast<std::int32_t>(best_column);
  cut_[node] = growing.ends[best_column][best_bin];
  const auto begin = growing.rows.begin();
  border = static_cast<std::size_t>(
      std::partition(
          begin + static_cast<std::ptrdiff_t>(first), begin + static_cast<std::ptrdiff_t>(last),
          [&](std::uint32_t row) { return growing.bins[row * growing.columns + best_column] <= best_bin; }) -
      begin);
  return true;
}

std::vector<double> Forest::predict(const Matrix& rows, const Fitting& fitting) const {
  std::vector<double> answers(rows.rows, 0.0);
  for (const std::int32_t root : roots_) {  // tree after tree, so that one stays in the cache
    fitting.check();
    for (std::size_t i = 0; i < rows.rows; ++i) {
      const double* const row = rows.row(i).data();
      auto node = static_cast<std::size_t>(root);
      while (column_[node] >= 0)
        node = static_cast<std::size_t>(below_[node]) + (row[column_[node]] <= cut_[node] ? 0U : 1U);
      answers[i] += cut_[node];
    }
  }
  for (double& answer : answers) answer /= static_cast<double>(roots_.size());
  return answers;
}

void Forest::keep(Archive& archive, std::size_t columns) {
  archive.list("forest.column", column_);
  archive.list("forest.below", below_);
  archive.list("forest.cut", cut_);
  archive.list("forest.roots", roots_);
  if (!archive.loading()) return;
  trees_ = roots_.size();
  if (below_.size() != column_.size() || cut_.size() != column_.size() || roots_.empty())
    archive.fail("forest.cut", "does not have one number a node");
  for (std::size_t i = 0; i < column_.size(); ++i)
    if (column_[i] >= 0 &&
        (static_cast<std::size_t>(column_[i]) >= columns || static_cast<std::size_t>(below_[i]) <= i ||
         static_cast<std::size_t>(below_[i]) + 1 >= column_.size()))
      archive.fail("forest.column", "names nodes that are not there");
  for (const std::int32_t root : roots_)
    if (static_cast<std::size_t>(root) >= column_.size())
      archive.fail("forest.roots", "names nodes that are not there");
}

}  // namespace screen
