// Cluster-based local outlier factor (He, Xu & Deng, 2003): the distance to the centre of the row's own
// cluster, or of the nearest large one where its own is small.
#pragma once

#include "detector.hpp"
#include "draws.hpp"

namespace screen {

class ClusterDistance final : public Detector {
 public:
  explicit ClusterDistance(std::size_t clusters) : clusters_(clusters) {}
  std::vector<double> fit(const Matrix& rows, const Fitting& fitting) override;
  std::vector<double> score(const Matrix& rows, const Fitting& fitting) const override;
  void keep(Archive& archive) override;

 private:
  void choose_centres(const Matrix& rows, Draws& draws);
  /// Moves centres to the means of their rows until they stay (Lloyd). Returns the number of rows of each.
  std::vector<std::size_t> settle(const Matrix& rows, const Fitting& fitting);
  void mark_large(const std::vector<std::size_t>& sizes, std::size_t rows);

  std::size_t clusters_;
  Matrix centres_;
  std::vector<std::uint8_t> large_;  ///< for each centre whether its cluster is large
};

}  // namespace screen
