// What ema and swa share: averages of a model's weights, which take the place of the weights during
// evaluations and are saved and loaded by parameter name ("average/fc1.weight").
#pragma once

#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_lerp.h>

#include <trainyard/error.hpp>
#include <trainyard/hook.hpp>
#include <trainyard/mixins/halves.hpp>
#include <trainyard/network.hpp>
#include <trainyard/sharded.hpp>
#include <trainyard/state.hpp>

namespace hooks {

using namespace trainyard;

class WeightAverage : public Hook {
 public:
  /// At model_ready: which tensors are averaged. Integer buffers (counters) never are. Throws ConfigError where tables
  /// lie in parts on the ranks: nobody would have the averages of rows that a lost rank had.
  void find_weights(StepContext& context) {
    const auto* const tables = dynamic_cast<const ShardsTables*>(&context.network());
    if (tables != nullptr && !tables->sharded().empty())
      throw ConfigError(
          "averages weights for evaluations, and the tables of the model lie in parts on the ranks: set "
          "model.sharded = false, or leave this hook out");
    names_.clear();
    weights_.clear();
    halves_.clear();
    if (const auto* const holder = dynamic_cast<HoldsHalves*>(&context.network())) halves_ = holder->halves();
    const auto add = [this](const std::vector<NamedTensor>& tensors) {
      for (const auto& [name, tensor] : tensors)
        if (at::isFloatingType(tensor.scalar_type())) {
          names_.push_back(name);
          weights_.push_back(tensor);
        }
    };
    add(context.network().parameters());
    if (with_buffers_) add(context.network().buffers());
  }

  /// At eval_start and eval_end. Before the first average there is nothing to swap.
  void swap_in(StepContext&) {
    if (averages_.empty()) return;
    const at::AutoDispatchBelowAutograd untracked;
    kept_ = copies(weights_);
    at::_foreach_copy_(weights_, averages_);
  }
  void swap_out(StepContext&) {
    if (kept_.empty()) return;
    const at::AutoDispatchBelowAutograd untracked;
    at::_foreach_copy_(weights_, kept_);
    kept_.clear();
  }

  void save(StateWriter& state) const override {
    state.scalar("updates", updates_);
    for (std::size_t i = 0; i < averages_.size(); ++i) state.tensor("average/" + names_[i], averages_[i]);
  }

  void load(const StateReader& state) override {
    const std::int64_t updates = state.integer("updates");
    std::vector<at::Tensor> averages;
    for (std::size_t i = 0; updates > 0 && i < names_.size(); ++i) {
      const at::Tensor& saved = state.tensor("average/" + names_[i]);
      const at::Tensor& own = weights_[i];
      const at::ScalarType type = half_of(own) != nullptr ? at::kFloat : own.scalar_type();
      if (saved.sizes() != own.sizes() || saved.scalar_type() != type) {
        std::ostringstream text;
        text << "state \"average/" << names_[i] << "\" is " << c10::toString(saved.scalar_type())
             << saved.sizes() << ", but the model has " << c10::toString(type) << own.sizes();
        throw PluginError(text.str());
      }
      averages.push_back(saved.detach().to(own.device(), type, false, /*copy=*/true));
    }
    updates_ = updates;
    averages_ = std::move(averages);
  }

 protected:
  explicit WeightAverage(bool with_buffers) : with_buffers_(with_buffers) {}

  /// Updates taken, which the next one does not count.
  std::int64_t updates() const { return updates_; }

  /// average <- average + share * (weights - average); the first update copies the weights.
  void update(double share) {
    const at::AutoDispatchBelowAutograd untracked;
    std::vector<at::Tensor> whole = weights_;
    for (at::Tensor& each : whole)
      if (const Halves* const half = half_of(each)) each = joined(*half);
    if (averages_.empty())
      averages_ = copies(whole);
    else
      at::_foreach_lerp_(averages_, whole, share);
    ++updates_;
  }

 private:
  /// Null for weights that are whole.
  const Halves* half_of(const at::Tensor& weight) const {
    for (const Halves& each : halves_)
      if (each.upper.is_same(weight)) return &each;
    return nullptr;
  }

  static std::vector<at::Tensor> copies(const std::vector<at::Tensor>& tensors) {
    std::vector<at::Tensor> result;
    result.reserve(tensors.size());
    for (const at::Tensor& tensor : tensors) result.push_back(tensor.detach().clone());
    return result;
  }

  bool with_buffers_;
  std::vector<std::string> names_;
  std::vector<at::Tensor> weights_;   ///< the model's own
  std::vector<Halves> halves_;        ///< of those that are halves, whose averages are float
  std::vector<at::Tensor> averages_;  ///< empty before the first update
  std::vector<at::Tensor> kept_;      ///< of the model, during an evaluation
  std::int64_t updates_ = 0;
};

}  // namespace hooks
