#include "core/engine/train/loss_meter.hpp"

#include <cmath>

#include "core/engine/distributed/together.hpp"

namespace trainyard::train {

bool LossMeter::add(const at::Tensor& loss, double weight) {
  weight_ += weight;
  if (!loss.is_cpu()) {
    kept_.emplace_back(loss.detach(), weight);
    return true;
  }
  const bool single = loss.scalar_type() == at::kFloat;
  const double value = single ? *loss.const_data_ptr<float>() : loss.item().toDouble();
  sum_ += value * weight;
  return std::isfinite(value);
}

double LossMeter::sum() const {
  double sum = sum_;
  for (const auto& [loss, weight] : kept_) sum += loss.item().toDouble() * weight;
  return sum;
}

std::optional<double> LossMeter::take() {
  sum_ = sum();
  kept_.clear();
  if (weight_ <= 0.0) return std::nullopt;
  return std::exchange(sum_, 0.0) / std::exchange(weight_, 0.0);
}

void LossMeter::merge(distributed::World& world) {
  const std::vector<double> all = distributed::sum(world, {sum(), weight_});
  kept_.clear();
  sum_ = all[0];
  weight_ = all[1];
}

void LossMeter::save(StateWriter& state) const {
  state.scalar("loss_sum", sum());
  state.scalar("loss_weight", weight_);
}

void LossMeter::load(const StateReader& state) {
  sum_ = state.number("loss_sum");
  weight_ = state.number("loss_weight");
  kept_.clear();
}

}  // namespace trainyard::train
