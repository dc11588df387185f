// The inputs near a sample, as the network is given them: what is bounded is the data before its mean and
// deviation.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

#include "vnnlib.hpp"

namespace gpupoly {

class Ball {
 public:
  /// `mean` and `std`: none, one, one a channel or one an input; `clip`: none, or the smallest and the largest.
  /// Throws ConfigError for another number of them.
  Ball(double eps, const std::vector<double>& mean, const std::vector<double>& std,
       const std::vector<double>& clip, const std::vector<std::int64_t>& shape);

  /// One case for each other class: that it has no less than `label` has. Boxes are rounded outward.
  std::vector<Case> around(const at::Tensor& sample, std::int64_t label, std::int64_t classes) const;

 private:
  std::vector<double> radius_, lowest_, highest_;
};

}  // namespace gpupoly
