#include "core/engine/train/loss_scaler.hpp"

#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <cmath>

#include <trainyard/state.hpp>

namespace trainyard::train {

bool LossScaler::unscale(std::vector<at::Tensor>& gradients) const {
  if (gradients.empty()) return true;
  const auto options = at::TensorOptions().device(gradients.front().device()).dtype(at::kFloat);
  at::Tensor found = at::zeros({1}, options);
  // The reciprocal is computed in double and rounded once, as GradScaler does.
  const at::Tensor inverse = at::full({1}, static_cast<float>(1.0 / static_cast<double>(scale_)), options);
  at::_amp_foreach_non_finite_check_and_unscale_(gradients, found, inverse);
  return found.item<float>() == 0.0F;
}

void LossScaler::update(bool finite) {
  if (!finite) {
    scale_ = static_cast<float>(static_cast<double>(scale_) * options_.backoff);
    good_steps_ = 0;
    return;
  }
  if (++good_steps_ < options_.growth_interval) return;
  good_steps_ = 0;
  const float grown = static_cast<float>(static_cast<double>(scale_) * options_.growth);
  if (std::isfinite(grown)) scale_ = grown;
}

void LossScaler::save(StateWriter& state) const {
  state.scalar("scale", static_cast<double>(scale_));
  state.scalar("good_steps", good_steps_);
}

void LossScaler::load(const StateReader& state) {
  scale_ = static_cast<float>(state.number("scale"));
  good_steps_ = state.integer("good_steps");
}

}  // namespace trainyard::train
