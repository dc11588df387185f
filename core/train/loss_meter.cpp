#include "core/train/loss_meter.hpp"

#include <cmath>

namespace trainyard::train {

bool LossMeter::add(const at::Tensor& loss, double weight) {
  weight_ += weight;
  if (!loss.is_cpu() || loss.scalar_type() != at::kFloat) {
    kept_.emplace_back(loss.detach(), weight);
    return true;
  }
  const double value = *loss.const_data_ptr<float>();
  sum_ += value * weight;
  return std::isfinite(value);
}

std::optional<double> LossMeter::take() {
  for (const auto& [loss, weight] : kept_) sum_ += loss.item().toDouble() * weight;
  kept_.clear();
  if (weight_ <= 0.0) return std::nullopt;
  return std::exchange(sum_, 0.0) / std::exchange(weight_, 0.0);
}

}  // namespace trainyard::train
