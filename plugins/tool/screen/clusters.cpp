#include "clusters.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace screen {
namespace {

struct Nearest {
  std::size_t place = 0;
  double square = std::numeric_limits<double>::infinity();
};

/// Returns the nearest centre, of the large ones alone where `large` is given.
Nearest nearest_centre(std::span<const double> row, const Matrix& centres,
                       const std::vector<std::uint8_t>* large = nullptr) {
  Nearest nearest;
  for (std::size_t c = 0; c < centres.rows; ++c) {
    if (large != nullptr && (*large)[c] == 0) continue;
    const double square = squared_distance(row, centres.row(c));
    if (square < nearest.square) nearest = {c, square};
  }
  return nearest;
}

}  // namespace

/// Greedy k-means++ (Arthur & Vassilvitskii, 2007): of a few rows, drawn by their squared distance, the one that leaves
/// least becomes the next centre.
void ClusterDistance::choose_centres(const Matrix& rows, Draws& draws) {
  centres_ = Matrix(clusters_, rows.columns);
  const auto place = [&](std::size_t centre, std::size_t row) {
    std::copy_n(rows.row(row).begin(), rows.columns, centres_.row(centre).begin());
  };
  place(0, draws.below(rows.rows));
  std::vector<double> squares(rows.rows), trial(rows.rows), best(rows.rows);
  for (std::size_t i = 0; i < rows.rows; ++i) squares[i] = squared_distance(rows.row(i), centres_.row(0));
  const auto trials = 2 + static_cast<std::size_t>(std::log(static_cast<double>(clusters_)));
  for (std::size_t c = 1; c < clusters_; ++c) {
    const double sum = std::accumulate(squares.begin(), squares.end(), 0.0);
    double least = std::numeric_limits<double>::infinity();
    std::size_t chosen = 0;
    for (std::size_t t = 0; t < trials; ++t) {
      double left = draws.uniform() * sum;
      std::size_t row = 0;
      while (row + 1 < rows.rows && (left -= squares[row]) > 0.0) ++row;
      double total = 0.0;
      for (std::size_t i = 0; i < rows.rows; ++i)
        total += trial[i] = std::min(squares[i], squared_distance(rows.row(i), rows.row(row)));
      if (total >= least) continue;
      least = total;
      chosen = row;
      best.swap(trial);
    }
    place(c, chosen);
    squares = best;
  }
}

std::vector<std::size_t> ClusterDistance::settle(const Matrix& rows, const Fitting& fitting) {
  constexpr int most_rounds = 300;
  std::vector<std::size_t> own(rows.rows, clusters_), sizes;
  for (int round = 0; round < most_rounds; ++round) {
    fitting.check();
    bool moved = false;
    for (std::size_t i = 0; i < rows.rows; ++i) {
      const std::size_t nearest = nearest_centre(rows.row(i), centres_).place;
      moved |= nearest != own[i];
      own[i] = nearest;
    }
    sizes.assign(clusters_, 0);
    for (const std::size_t cluster : own) ++sizes[cluster];
    if (!moved) break;
    Matrix sums(clusters_, rows.columns);
    for (std::size_t i = 0; i < rows.rows; ++i)
      for (std::size_t j = 0; j < rows.columns; ++j) sums.row(own[i])[j] += rows.at(i, j);
    for (std::size_t c = 0; c < clusters_; ++c)
      for (std::size_t j = 0; j < rows.columns && sizes[c] > 0; ++j)  // an empty cluster keeps its centre
        centres_.row(c)[j] = sums.at(c, j) / static_cast<double>(sizes[c]);
  }
  return sizes;
}

/// The large clusters are the fewest largest ones that hold nine tenths of the rows and are followed by one of a fifth
/// of the last one's size; if there is no such number, by the first of the two conditions that can be met; if there is
/// none, all.
void ClusterDistance::mark_large(const std::vector<std::size_t>& sizes, std::size_t rows) {
  constexpr double share = 0.9, ratio = 5.0;
  std::vector<std::size_t> order(clusters_);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return sizes[a] > sizes[b]; });
  std::size_t both = 0, held = 0, followed = 0, sum = 0;
  for (std::size_t i = 1; i < clusters_; ++i) {
    sum += sizes[order[i - 1]];
    const bool holds = static_cast<double>(sum) >= share * static_cast<double>(rows);
    const bool follows =
        static_cast<double>(sizes[order[i - 1]]) >= ratio * static_cast<double>(sizes[order[i]]);
    if (holds && follows && both == 0) both = i;
    if (holds && held == 0) held = i;
    if (follows && followed == 0) followed = i;
  }
  const std::size_t count = both > 0 ? both : held > 0 ? held : followed > 0 ? followed : clusters_;
  large_.assign(clusters_, 0);
  for (std::size_t i = 0; i < count; ++i) large_[order[i]] = 1;
}

std::vector<double> ClusterDistance::fit(const Matrix& rows, const Fitting& fitting) {
  Draws draws(fitting.random);
  choose_centres(rows, draws);
  mark_large(settle(rows, fitting), rows.rows);
  return score(rows, fitting);
}

std::vector<double> ClusterDistance::score(const Matrix& rows, const Fitting&) const {
  std::vector<double> scores(rows.rows);
  for (std::size_t i = 0; i < rows.rows; ++i) {
    Nearest nearest = nearest_centre(rows.row(i), centres_);
    if (large_[nearest.place] == 0) nearest = nearest_centre(rows.row(i), centres_, &large_);
    scores[i] = std::sqrt(nearest.square);
  }
  return scores;
}

void ClusterDistance::keep(Archive& archive) {
  archive.matrix("centres", centres_);
  archive.list("large", large_);
  if (archive.loading() &&
      (large_.size() != centres_.rows || large_.empty() || std::ranges::count(large_, 1) == 0))
    archive.fail("large", "does not have one number a centre, or no large one");
}

}  // namespace screen
