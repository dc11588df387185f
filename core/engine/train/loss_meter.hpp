// The mean training loss between two log points, without an operation on the device in between: on a CPU the
// value is read where it lies; of other devices the scalars are kept and added up when asked.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/state.hpp>

namespace trainyard::train {

class LossMeter {
 public:
  /// `loss`: a float scalar, the mean over `weight` items. False where it lies on a CPU and is not finite.
  bool add(const at::Tensor& loss, double weight);

  /// The weighted mean since the last call; nothing where nothing was added. Waits for the device.
  std::optional<double> take();

  void save(StateWriter& state) const;  ///< waits for the device
  void load(const StateReader& state);

 private:
  double sum() const;

  double sum_ = 0.0;
  double weight_ = 0.0;
  std::vector<std::pair<at::Tensor, double>> kept_;
};

}  // namespace trainyard::train
