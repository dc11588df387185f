// A metric that speaks of the data as its files do: in the numbers of their targets (scales_targets.hpp), by the
// names of their classes, in bytes of their texts (new_data.hpp).
#pragma once

#include <trainyard/contract.hpp>
#include <trainyard/dataset.hpp>

TRAINYARD_CONTRACT("mixins/reads_dataset.hpp");

namespace trainyard {

/// A metric implements it; the host finds it by dynamic_cast.
class ReadsDataset {
 public:
  virtual ~ReadsDataset() = default;

  /// Called once, after Metric::check, with the training split, open; it does not outlive the call. Throws
  /// ConfigError where the dataset lacks what the metric needs. Loop thread.
  virtual void read_dataset(const Dataset& training) = 0;
};

}  // namespace trainyard
