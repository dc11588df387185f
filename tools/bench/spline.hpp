// A cubic spline of 8 control points fitted to 100 samples, as a loss that is differentiated. Without LibTorch.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <span>

namespace spline {

constexpr std::size_t samples = 100, points = 8;

/// Mean squared distance of the curve from the samples.
struct Fit {
  std::array<std::size_t, samples> first{};  ///< of the 4 control points that a sample depends on
  std::array<std::array<double, 4>, samples> weights{};
  std::array<double, samples> targets{};

  Fit() {
    for (std::size_t i = 0; i < samples; ++i) {
      const double at = static_cast<double>(i) / samples * (points - 3);
      first[i] = static_cast<std::size_t>(at);
      const double u = at - static_cast<double>(first[i]), v = 1 - u;
      weights[i] = {v * v * v / 6, (3 * u * u * u - 6 * u * u + 4) / 6, (3 * v * v * v - 6 * v * v + 4) / 6,
                    u * u * u / 6};
      targets[i] = std::sin(0.06 * static_cast<double>(i)) + 0.1 * std::cos(1.7 * static_cast<double>(i));
    }
  }

  template <class T>
  T operator()(std::span<const T> control) const {
    T sum = 0;
    for (std::size_t i = 0; i < samples; ++i) {
      T distance = -targets[i];
      for (std::size_t k = 0; k < 4; ++k) distance += weights[i][k] * control[first[i] + k];
      sum += distance * distance;
    }
    return sum / static_cast<double>(samples);
  }
};

}  // namespace spline
