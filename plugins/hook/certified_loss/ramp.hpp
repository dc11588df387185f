// How far a quantity has come on its way from 0 to 1: at first as a power of the steps, then in proportion to
// them, without a kink (auto_LiRPA's SmoothedScheduler).
#pragma once

#include <cmath>
#include <cstdint>

namespace certified_loss {

struct Ramp {
  std::int64_t start = 0, length = 1;  ///< steps; 0 up to `start`, 1 from start + length on
  double mid = 0.4;                    ///< share of the length, above 0, after which it is linear

  /// After `step` steps.
  double at(std::int64_t step) const {
    if (step <= start) return 0.0;
    if (step >= start + length) return 1.0;
    constexpr double power = 4.0;
    const double curved = mid * static_cast<double>(length), all = static_cast<double>(length);
    const double slope = std::pow(curved, power - 1.0);
    const double scale = 1.0 / ((all - curved) * power * slope + curved * slope);
    const auto gone = static_cast<double>(step - start);
    if (gone < curved) return scale * std::pow(gone, power);
    return scale * (slope * curved + (gone - curved) * power * slope);
  }
};

}  // namespace certified_loss
