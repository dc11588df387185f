#include "proximity.hpp"

#include <algorithm>

namespace screen {

std::vector<double> NearestDistance::fit(const Matrix& rows, const Fitting& fitting) {
  index_ = NeighbourIndex(rows);
  return scores_of(index_.nearest_others(neighbours_, fitting));
}
std::vector<double> NearestDistance::score(const Matrix& rows, const Fitting& fitting) const {
  return scores_of(index_.nearest(rows, neighbours_, fitting));
}
std::vector<double> NearestDistance::scores_of(const Neighbours& found) const {
  std::vector<double> scores(found.distances.size() / found.count);
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const double* const distances = found.distances_of(i);
    double sum = 0.0;
    for (std::size_t j = 0; j < found.count; ++j) sum += distances[j];
    scores[i] = mean_ ? sum / static_cast<double>(found.count) : distances[found.count - 1];
  }
  return scores;
}

std::vector<double> LocalOutlierFactor::fit(const Matrix& rows, const Fitting& fitting) {
  index_ = NeighbourIndex(rows);
  const Neighbours found = index_.nearest_others(neighbours_, fitting);
  reach_.resize(rows.rows);
  for (std::size_t i = 0; i < rows.rows; ++i) reach_[i] = found.distances_of(i)[neighbours_ - 1];
  density_ = densities_of(found);
  return factors_of(found, density_);
}
std::vector<double> LocalOutlierFactor::score(const Matrix& rows, const Fitting& fitting) const {
  const Neighbours found = index_.nearest(rows, neighbours_, fitting);
  return factors_of(found, densities_of(found));
}
std::vector<double> LocalOutlierFactor::densities_of(const Neighbours& found) const {
  constexpr double guard = 1e-10;  // where all neighbours are the same row
  std::vector<double> densities(found.distances.size() / found.count);
  for (std::size_t i = 0; i < densities.size(); ++i) {
    double sum = 0.0;
    for (std::size_t j = 0; j < found.count; ++j)
      sum += std::max(found.distances_of(i)[j], reach_[static_cast<std::size_t>(found.places_of(i)[j])]);
    densities[i] = 1.0 / (sum / static_cast<double>(found.count) + guard);
  }
  return densities;
}
std::vector<double> LocalOutlierFactor::factors_of(const Neighbours& found,
                                                   const std::vector<double>& densities) const {
  std::vector<double> factors(densities.size());
  for (std::size_t i = 0; i < factors.size(); ++i) {
    double sum = 0.0;
    for (std::size_t j = 0; j < found.count; ++j)
      sum += density_[static_cast<std::size_t>(found.places_of(i)[j])];
    factors[i] = sum / static_cast<double>(found.count) / densities[i];
  }
  return factors;
}
void LocalOutlierFactor::keep(Archive& archive) {
  index_.keep(archive);
  archive.list("reach", reach_);
  archive.list("density", density_);
  if (archive.loading() && (reach_.size() != index_.reference().rows || density_.size() != reach_.size()))
    archive.fail("density", "does not have one number a row");
}

std::vector<double> AngleBased::fit(const Matrix& rows, const Fitting& fitting) {
  index_ = NeighbourIndex(rows);
  return scores_of(rows, index_.nearest_others(neighbours_, fitting));
}
std::vector<double> AngleBased::score(const Matrix& rows, const Fitting& fitting) const {
  return scores_of(rows, index_.nearest(rows, neighbours_, fitting));
}
std::vector<double> AngleBased::scores_of(const Matrix& rows, const Neighbours& found) const {
  std::vector<double> scores(rows.rows);
  Matrix directions(found.count, rows.columns);
  std::vector<double> squares(found.count), ratios;
  for (std::size_t i = 0; i < rows.rows; ++i) {
    for (std::size_t a = 0; a < found.count; ++a) {
      const auto neighbour = index_.reference().row(static_cast<std::size_t>(found.places_of(i)[a]));
      squares[a] = 0.0;
      for (std::size_t j = 0; j < rows.columns; ++j) {
        const double difference = neighbour[j] - rows.at(i, j);
        directions.row(a)[j] = difference;
        squares[a] += difference * difference;
      }
    }
    ratios.clear();
    for (std::size_t a = 0; a < found.count; ++a)
      for (std::size_t b = 0; b < a; ++b) {
        if (squares[a] == 0.0 || squares[b] == 0.0)
          continue;  // a neighbour that equals the row has no direction
        double product = 0.0;
        for (std::size_t j = 0; j < rows.columns; ++j) product += directions.at(a, j) * directions.at(b, j);
        ratios.push_back(product / squares[a] / squares[b]);
      }
    double mean = 0.0, variance = 0.0;
    for (const double ratio : ratios) mean += ratio / static_cast<double>(ratios.size());
    for (const double ratio : ratios)
      variance += (ratio - mean) * (ratio - mean) / static_cast<double>(ratios.size());
    scores[i] = -variance;
  }
  return scores;
}

}  // namespace screen
