// Detectors that look at one column at a time: histograms (HBOS) and tails (COPOD, ECOD).
#pragma once

#include "detector.hpp"

namespace screen {

/// Histogram-based outlier score (Goldstein & Dengel, KI 2012): the sum over columns of -log2(density + 0.1).
class Histograms final : public Detector {
 public:
  explicit Histograms(std::size_t bins) : bins_(bins) {}
  std::vector<double> fit(const Matrix& rows, const Fitting& fitting) override;
  std::vector<double> score(const Matrix& rows, const Fitting& fitting) const override;
  void keep(Archive& archive) override;

 private:
  std::size_t bins_;
  std::vector<double> begin_, width_;  ///< of each column: its smallest number, and the width of its bins
  Matrix surprise_;                    ///< columns x bins
};

/// Empirical tail probabilities of each column, summed over columns. The share of rows that are no larger is that among
/// the rows it was fitted to, at least 1 / n, for any row: so that a score does not depend on others.
class Tails final : public Detector {
 public:
  enum class Rule : std::uint8_t {
    copod,      ///< max(skewed tail, mean of both) a column (Li et al., ICDM 2020)
    ecod,       ///< the largest of the three a column, as PyOD has it (Li et al., TKDE 2022)
    ecod_sums,  ///< the largest of the three sums over columns, as the article has it
  };
  explicit Tails(Rule rule) : rule_(rule) {}
  std::vector<double> fit(const Matrix& rows, const Fitting& fitting) override;
  std::vector<double> score(const Matrix& rows, const Fitting& fitting) const override;
  void keep(Archive& archive) override;

 private:
  Rule rule_;
  Matrix sorted_;  ///< columns x rows, each ascending
  std::vector<double> skewness_;
};

}  // namespace screen
