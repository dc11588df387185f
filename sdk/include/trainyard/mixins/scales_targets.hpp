// A dataset whose targets are other numbers than those of its files, so that a network learns numbers about 1.
#pragma once

#include <utility>

#include <trainyard/contract.hpp>

TRAINYARD_CONTRACT("mixins/scales_targets.hpp");

namespace trainyard {

/// A dataset implements it; who shows a network's numbers to people finds it by dynamic_cast, after open().
class ScalesTargets {
 public:
  virtual ~ScalesTargets() = default;

  /// Returns factor and summand: a number of the network times the factor plus the summand is one of the files. 1 and 0
  /// where targets are as the files have them.
  virtual std::pair<double, double> target_scale() const = 0;
};

}  // namespace trainyard
