// The mean training loss between two log points, without an operation on the device in between: on a CPU the
// value is read where it lies; of other devices the scalars are kept and added up when asked.
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
  /// `loss`: a float scalar, the mean over `weight` items. False where it lies on a CPU and is not finite.
  bool add(const at::Tensor& loss, double weight);

  /// The same, of losses that are summed up already, each times its weight.
  void add_sum(double sum, double weight) {
    sum_ += sum;
    weight_ += weight;
  }
  /// What all ranks have added; a collective.
  void merge(distributed::World& world);

  /// The weighted mean since the last call; nothing where nothing was added. Waits for the device.
  std::optional<double> take();

  double weight() const { return weight_; }
  /// Waits for the device.
  double sum() const;

  void save(StateWriter& state) const;  ///< waits for the device
  void load(const StateReader& state);

 private:
  double sum_ = 0.0;
  double weight_ = 0.0;
  std::vector<std::pair<at::Tensor, double>> kept_;
};

}  // namespace trainyard::train
