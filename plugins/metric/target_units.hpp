// The factor by which errors in the network's numbers become errors in the numbers of the data's files.
#pragma once

#include <cmath>

#include <trainyard/mixins/reads_dataset.hpp>
#include <trainyard/mixins/scales_targets.hpp>

namespace metrics {

/// Sums are kept in the network's numbers, and `compute` multiplies: 1 where targets are as the files have them.
class InTargetUnits : public trainyard::ReadsDataset {
 public:
  void read_dataset(const trainyard::Dataset& training) override {
    if (const auto* const scales = dynamic_cast<const trainyard::ScalesTargets*>(&training))
      unit_ = std::abs(scales->target_scale().first);
  }

 protected:
  double unit() const { return unit_; }

 private:
  double unit_ = 1.0;
};

}  // namespace metrics
