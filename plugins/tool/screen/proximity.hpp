// Detectors that look at the nearest rows: their distance (kNN), their density (LOF), the angles under which
// they are seen (ABOD).
#pragma once

#include "neighbours.hpp"

namespace screen {

/// Scores a row by the distance to its k-th neighbour (Ramaswamy et al., SIGMOD 2000), or to all k on average.
class NearestDistance final : public Detector {
 public:
  NearestDistance(std::size_t neighbours, bool mean) : neighbours_(neighbours), mean_(mean) {}
  std::vector<double> fit(const Matrix& rows, const Fitting& fitting) override;
  std::vector<double> score(const Matrix& rows, const Fitting& fitting) const override;
  void keep(Archive& archive) override { index_.keep(archive); }

 private:
  std::vector<double> scores_of(const Neighbours& found) const;

  std::size_t neighbours_;
  bool mean_;
  NeighbourIndex index_;
};

/// Local outlier factor (Breunig et al., SIGMOD 2000): how much sparser the place of a row is than those of its
/// neighbours.
class LocalOutlierFactor final : public Detector {
 public:
  explicit LocalOutlierFactor(std::size_t neighbours) : neighbours_(neighbours) {}
  std::vector<double> fit(const Matrix& rows, const Fitting& fitting) override;
  std::vector<double> score(const Matrix& rows, const Fitting& fitting) const override;
  void keep(Archive& archive) override;

 private:
  std::vector<double> densities_of(const Neighbours& found) const;
  std::vector<double> factors_of(const Neighbours& found, const std::vector<double>& densities) const;

  std::size_t neighbours_;
  NeighbourIndex index_;
  std::vector<double> reach_, density_;  ///< of the rows it was fitted to: distance of the k-th, and density
};

/// Fast angle-based outlier detection (Kriegel et al., KDD 2008): minus the variance, over pairs of neighbours, of the
/// product of both directions over both squared lengths.
class AngleBased final : public Detector {
 public:
  explicit AngleBased(std::size_t neighbours) : neighbours_(neighbours) {}
  std::vector<double> fit(const Matrix& rows, const Fitting& fitting) override;
  std::vector<double> score(const Matrix& rows, const Fitting& fitting) const override;
  void keep(Archive& archive) override { index_.keep(archive); }

 private:
  std::vector<double> scores_of(const Matrix& rows, const Neighbours& found) const;

  std::size_t neighbours_;
  NeighbourIndex index_;
};

}  // namespace screen
