// One-class support vector machine (Schölkopf et al., 2001) with a radial kernel: how far outside of the boundary around the
// bulk of the rows a row lies.
#pragma once

#include "detector.hpp"

namespace screen {

class Boundary final : public Detector {
 public:
  /// `nu`: bounds the share of rows outside from above, and that of support vectors from below.
  explicit Boundary(double nu) : nu_(nu) {}
  std::vector<double> fit(const Matrix& rows, const Fitting& fitting) override;
  std::vector<double> score(const Matrix& rows, const Fitting& fitting) const override;
  void keep(Archive& archive) override;

 private:
  void take_support(const Matrix& rows, const std::vector<double>& alpha);

  double nu_, gamma_ = 0.0, rho_ = 0.0;
  std::vector<double> mean_;      ///< subtracted from rows, so that single precision has their differences
  std::size_t support_ = 0;       ///< support vectors
  std::vector<float> by_column_;  ///< columns x support vectors
  std::vector<double> weights_;
};

}  // namespace screen
