// What is drawn often and what seldom, by the law of Zipf and Mandelbrot.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace datasets {

/// k in [0, count) is drawn with probability proportional to (k + shift)^-exponent.
class Zipf {
 public:
  Zipf(std::int64_t count, double exponent, double shift) : below_(static_cast<std::size_t>(count)) {
    double sum = 0.0;
    for (std::size_t k = 0; k < below_.size(); ++k)
      below_[k] = sum += std::pow(static_cast<double>(k) + shift, -exponent);
    for (double& each : below_) each /= sum;
  }
  std::int64_t at(double uniform) const {
    return std::upper_bound(below_.begin(), below_.end() - 1, uniform) - below_.begin();
  }

 private:
  std::vector<double> below_;  ///< probability of this one and those before
};

}  // namespace datasets
