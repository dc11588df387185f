// The mean training loss between two log points, without an operation on the device in between: on a CPU the
// value is read at once; scalars on other devices are kept, and added up when the mean is taken.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/state.hpp>

#include "core/engine/distributed/world.hpp"

namespace trainyard::train {

class LossMeter {
 public:
  /// `loss` is a float scalar, the mean over `weight` items. Returns false if it is on a CPU and not finite.
  bool add(const at::Tensor& loss, double weight);

  /// The same for losses that are summed up already, each times its weight.
  void add_sum(double sum, double weight) {
    sum_ += sum;
    weight_ += weight;
  }
  /// Adds up what all ranks have added; a collective.
  void merge(distributed::World& world);

  /// Returns the weighted mean since the last call; nothing if nothing was added. Waits for the device.
  std::optional<double> take();

  double weight() const { return weight_; }
  /// Returns the sum of the losses, each times its weight. Waits for the device.
  double sum() const;

  void save(StateWriter& state) const;  ///< waits for the device
  void load(const StateReader& state);

 private:
  double sum_ = 0.0;
  double weight_ = 0.0;
  std::vector<std::pair<at::Tensor, double>> kept_;
};

}  // namespace trainyard::train
