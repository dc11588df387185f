// What optimizers with two decaying averages share.
#pragma once

#include <string>
#include <vector>

#include <trainyard/error.hpp>

namespace optimizers {

/// Throws ConfigError unless there are two: of the gradient, and of its square.
inline void check_betas(const std::vector<double>& betas) {
  if (betas.size() != 2)
    throw trainyard::ConfigError("optimizer.betas has " + std::to_string(betas.size()) +
                                 " numbers; two are needed, such as [0.9, 0.999]");
}

}  // namespace optimizers
