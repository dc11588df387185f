// A dataset whose samples see each other, as edges of a graph do over which messages go: what is left out of
// the samples is then still seen by the rest. Found by what it is: dynamic_cast<const LinkedSamples*>(&dataset).
#pragma once

#include <string>

#include <trainyard/contract.hpp>

TRAINYARD_CONTRACT("linked_samples.hpp");

namespace trainyard {

class LinkedSamples {
 public:
  virtual ~LinkedSamples() = default;

  /// What of the dataset parts its samples so that a fold of those for training is an honest test, as
  /// "data.shares", which is the mend where the host is asked for folds of them; empty: any fold is one.
  /// After open().
  virtual std::string parted_by() const = 0;
};

}  // namespace trainyard
