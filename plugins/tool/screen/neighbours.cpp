#include "neighbours.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

namespace screen {
namespace {

constexpr std::size_t block_rows = 128, tile_rows = 4096;

/// Rows whose scaled length is beyond this do not fit into single precision once squared.
constexpr double largest_square = 1e30;

/// Bounds the error of a squared distance of `columns` numbers in single precision, over the sum of both
/// squared lengths: of the rounded inputs, of the products' sum and of the three terms.
float error_of(std::size_t columns) {
  return static_cast<float>(static_cast<double>(2 * columns + 32) * 0x1p-24);
}
/// Bounds what is lost beside that where products are too small for single precision.
float underflow_of(std::size_t columns) {
  return 4.0F * static_cast<float>(columns) * std::numeric_limits<float>::min();
}

struct Neighbour {
  double square = 0.0;
  std::int32_t place = 0;
  bool operator<(const Neighbour& other) const {
    return square != other.square ? square < other.square : place < other.place;
  }
};

/// Writes the nearest of the candidates, by distances in double precision.
void settle(std::vector<Neighbour>& exact, std::size_t count, std::size_t row, Neighbours& out) {
  const auto end = exact.begin() + static_cast<std::ptrdiff_t>(count);
  std::partial_sort(exact.begin(), end, exact.end());
  for (std::size_t i = 0; i < count; ++i) {
    out.distances[row * count + i] = std::sqrt(exact[i].square);
    out.places[row * count + i] = exact[i].place;
  }
}

}  // namespace

/// Collects the rows of the reference that may be among the nearest of one query.
class NeighbourIndex::Candidates {
 public:
  struct Candidate {
    float low = 0.0F, high = 0.0F;  ///< bounds of the squared distance, less the square of the query
    std::int32_t place = 0;
  };

  /// `slack`: the error that the query's own length brings, added to each upper bound.
  void begin(std::size_t count, float slack) {
    count_ = count;
    slack_ = slack;
    limit_ = std::numeric_limits<float>::infinity();
    room_ = 4 * count + 64;
    found_.clear();
  }
  /// Takes the products of the query with rows from `first` on.
  void take(const float* products, const float* low, const float* high, std::size_t first, std::size_t rows,
            std::size_t left_out) {
    for (std::size_t j = 0; j < rows; ++j) {
      const float product = 2.0F * products[j];
      const float bound = low[first + j] - product - slack_;
      if (!(bound <= limit_) || first + j == left_out) continue;
      found_.push_back({bound, high[first + j] - product + slack_, static_cast<std::int32_t>(first + j)});
      if (found_.size() >= room_) prune();
    }
  }
  const std::vector<Candidate>& finish() {
    if (found_.size() > count_) prune();
    return found_;
  }

 private:
  /// Drops what cannot be among the nearest: `count_` others are certainly nearer.
  void prune() {
    const auto last = found_.begin() + static_cast<std::ptrdiff_t>(count_) - 1;
    std::nth_element(found_.begin(), last, found_.end(),
                     [](const Candidate& a, const Candidate& b) { return a.high < b.high; });
    limit_ = std::min(limit_, last->high);
    std::erase_if(found_, [&](const Candidate& each) { return each.low > limit_; });
    room_ = std::max(room_, 2 * found_.size());  // many rows may be as near
  }

  std::size_t count_ = 0, room_ = 0;
  float slack_ = 0.0F, limit_ = 0.0F;
  std::vector<Candidate> found_;
};

NeighbourIndex::NeighbourIndex(Matrix reference) : reference_(std::move(reference)) {
  prepare();
}

void NeighbourIndex::prepare() {
  const std::size_t rows = reference_.rows, columns = reference_.columns;
  mean_.assign(columns, 0.0);
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j) mean_[j] += reference_.at(i, j) / static_cast<double>(rows);
  double largest = 0.0;
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j)
      largest = std::max(largest, std::abs(reference_.at(i, j) - mean_[j]));
  scale_ = largest > 1e-300 ? 1.0 / largest : 1.0;
  scaled_ = at::empty({static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns)}, at::kFloat);
  auto* out = scaled_.mutable_data_ptr<float>();
  low_.resize(rows);
  high_.resize(rows);
  const double error = error_of(columns);
  for (std::size_t i = 0; i < rows; ++i) {
    const double square = scale_row(reference_.row(i), out + i * columns);
    low_[i] = static_cast<float>(square * (1.0 - error));
    high_[i] = static_cast<float>(square * (1.0 + error));
  }
}

Neighbours NeighbourIndex::nearest(const Matrix& rows, std::size_t count, const Fitting& fitting) const {
  return find(rows, count, false, fitting);
}
Neighbours NeighbourIndex::nearest_others(std::size_t count, const Fitting& fitting) const {
  return find(reference_, count, true, fitting);
}

/// Writes a row as it is multiplied, and returns its squared length.
double NeighbourIndex::scale_row(std::span<const double> row, float* out) const {
  double square = 0.0;
  for (std::size_t j = 0; j < row.size(); ++j) {
    const double value = (row[j] - mean_[j]) * scale_;
    out[j] = static_cast<float>(value);
    square += value * value;
  }
  return square;
}

/// Multiplies a block of queries with all rows, tile after tile, and lets each query look at its products.
void NeighbourIndex::collect(const at::Tensor& queries, at::Tensor& products,
                             std::span<Candidates> candidates, std::size_t first_left_out) const {
  for (std::size_t begin = 0; begin < reference_.rows; begin += tile_rows) {
    const std::size_t size = std::min(tile_rows, reference_.rows - begin);
    at::Tensor part = products.narrow(1, 0, static_cast<std::int64_t>(size));
    at::mm_out(part, queries,
               scaled_.narrow(0, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(size)).t());
    for (std::size_t i = 0; i < candidates.size(); ++i)
      candidates[i].take(products.const_data_ptr<float>() + i * tile_rows, low_.data(), high_.data(), begin,
                         size, first_left_out + i);
  }
}

Neighbours NeighbourIndex::find(const Matrix& rows, std::size_t count, bool others,
                                const Fitting& fitting) const {
  const at::NoGradGuard no_grad;
  const std::size_t columns = reference_.columns, total = reference_.rows;
  Neighbours out{count, std::vector<double>(rows.rows * count), std::vector<std::int32_t>(rows.rows * count)};
  const auto block_size = static_cast<std::int64_t>(block_rows);
  const at::Tensor queries = at::zeros({block_size, static_cast<std::int64_t>(columns)}, at::kFloat);
  at::Tensor products = at::empty({block_size, static_cast<std::int64_t>(tile_rows)}, at::kFloat);
  std::vector<Candidates> candidates(block_rows);
  std::vector<double> squares(block_rows);
  std::vector<Neighbour> exact;
  for (std::size_t first = 0; first < rows.rows; first += block_rows) {
    fitting.check();
    const std::size_t block = std::min(block_rows, rows.rows - first);
    for (std::size_t i = 0; i < block; ++i) {
      squares[i] = scale_row(rows.row(first + i), queries.mutable_data_ptr<float>() + i * columns);
      candidates[i].begin(count, static_cast<float>(squares[i]) * error_of(columns) + underflow_of(columns));
    }
    const std::size_t left_out = others ? first : total;
    collect(queries, products, {candidates.data(), block}, left_out);
    for (std::size_t i = 0; i < block; ++i) {
      exact.clear();
      const auto add = [&](std::size_t place) {
        exact.push_back(
            {squared_distance(rows.row(first + i), reference_.row(place)), static_cast<std::int32_t>(place)});
      };
      if (squares[i] < largest_square) {
        for (const auto& each : candidates[i].finish()) add(static_cast<std::size_t>(each.place));
      } else {
        for (std::size_t place = 0; place < total; ++place)
          if (place != left_out + i) add(place);
      }
      settle(exact, count, first + i, out);
    }
  }
  return out;
}

void NeighbourIndex::keep(Archive& archive) {
  archive.matrix("reference", reference_);
  if (archive.loading()) prepare();
}

}  // namespace screen
