// Principal components (Shyu et al., 2003, as PyOD has it): distances of the standardised row to the directions of the data,
// each over the share of the variance that lies along it.
#pragma once

#include "detector.hpp"

namespace screen {

class Components final : public Detector {
 public:
  std::vector<double> fit(const Matrix& rows, const Fitting& fitting) override;
  std::vector<double> score(const Matrix& rows, const Fitting& fitting) const override;
  void keep(Archive& archive) override;

 private:
  std::vector<double> mean_, deviation_;
  Matrix directions_;          ///< one a row, of length 1
  std::vector<double> share_;  ///< of the variance, along each
};

}  // namespace screen
