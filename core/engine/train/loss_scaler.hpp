// Dynamic loss scaling for fp16-mixed (Micikevicius et al., "Mixed precision training", ICLR 2018,
// section 3.2), with the rule and the defaults of torch.amp.GradScaler: an overflow halves the scale and
// skips the step; 2000 steps without one double it.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace trainyard {
class StateWriter;
class StateReader;
}  // namespace trainyard

namespace trainyard::train {

class LossScaler {
 public:
  struct Options {
    float initial = 65536.0F;
    double growth = 2.0;
    double backoff = 0.5;
    std::int64_t growth_interval = 2000;
  };

  LossScaler() = default;
  explicit LossScaler(const Options& options) : options_(options), scale_(options.initial) {}

  float scale() const { return scale_; }

  /// Divides the gradients by the scale, in place. Returns false if one of them is not finite: skip the step.
  /// Waits for the device. The gradients must share a device.
  bool unscale(std::vector<at::Tensor>& gradients) const;

  /// Called after every step; `finite` is what `unscale` returned.
  void update(bool finite);

  void save(StateWriter& state) const;
  void load(const StateReader& state);

 private:
  Options options_;
  float scale_ = options_.initial;
  std::int64_t good_steps_ = 0;  ///< since the scale changed last
};

}  // namespace trainyard::train
