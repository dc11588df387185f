// Columns of a radial kernel between the rows of a table, computed when they are asked for and kept while there is room.
#pragma once

#include <deque>
#include <vector>

#include <ATen/core/Tensor.h>

#include "detector.hpp"

namespace screen {

class KernelColumns {
 public:
  KernelColumns(const Matrix& rows, const std::vector<double>& mean, double gamma, const Fitting& fitting);

  std::size_t rows() const { return static_cast<std::size_t>(table_.size(0)); }
  /// Returns column `i`. The pointer is good until two other columns were asked for.
  const float* column(std::size_t i);

 private:
  void compute(std::size_t first, std::size_t count);

  at::Tensor table_;
  std::vector<float> squares_;
  float gamma_;
  std::size_t room_;                 ///< columns that are kept at most
  std::vector<at::Tensor> columns_;  ///< by row; undefined: not there
  std::deque<std::size_t> kept_;     ///< in the order in which they came
};

}  // namespace screen
