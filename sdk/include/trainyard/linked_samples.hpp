// A dataset whose samples see each other, as edges of a graph do over which messages go: samples that are
// held out are still seen by the rest. Found by its type: dynamic_cast<const LinkedSamples*>(&dataset).
#pragma once

#include <string>

#include <trainyard/contract.hpp>

TRAINYARD_CONTRACT("linked_samples.hpp");

namespace trainyard {

class LinkedSamples {
 public:
  virtual ~LinkedSamples() = default;

  /// Returns the option that parts the dataset's samples for an honest test, "data.shares", where folds of
  /// those for training would not be one; the host names it where it is asked for such folds. Empty: any fold
  /// is an honest test. After open().
  virtual std::string parted_by() const = 0;
};

}  // namespace trainyard
