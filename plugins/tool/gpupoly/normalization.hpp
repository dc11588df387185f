// Bounds of a layer normalisation (Ba et al. 2016, arXiv 1607.06450). Like bounds.cpp, for any rounding mode.
#pragma once

#include <cstdint>

#include "rows.hpp"

namespace gpupoly {

/// Of y_i = c_i / sqrt(mean of all c_j^2 + epsilon), c being x less its mean, for each `group` elements behind each other.
/// `unit`: that of the program's rounding, whatever the order of its sums and however it takes the variance; 0: the
/// real function.
Bounds normalized(const Bounds& x, std::int64_t group, double epsilon, double unit);

}  // namespace gpupoly
