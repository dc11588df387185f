// Wraps plugins in the guard of their own slots, where not the host calls them, but a network or backward,
// within another slot's guard.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include <trainyard/compressor.hpp>
#include <trainyard/dropout.hpp>
#include <trainyard/network.hpp>
#include <trainyard/rule_set.hpp>

#include "core/engine/train/active_plugin.hpp"
#include "core/engine/train/guard.hpp"

namespace trainyard::train {

/// Buckets are exchanged within the guard of the model, whose backward fills them.
class GuardedCompressor final : public Compressor {
 public:
  GuardedCompressor(config::SlotConfig slot, Compressor& compressor)
      : slot_(std::move(slot)), compressor_(compressor) {}
  bool takes(const NamedTensor& parameter) const override {
    return guarded(slot_, 0, [&] { return compressor_.takes(parameter); });
  }
  void open(Ranks&, std::span<const BucketPlan>, const RunScale&) override {}
  std::unique_ptr<Exchange> reduce(std::size_t bucket, const at::Tensor& gradients,
                                   std::int64_t step) override {
    return guarded(slot_, step + 1, [&] { return compressor_.reduce(bucket, gradients, step); });
  }
  void load_all(std::span<const State>) override {}

 private:
  const config::SlotConfig slot_;
  Compressor& compressor_;
};

/// The network calls it within the guard of the model; its twins on other threads take turns.
class GuardedDropout final : public Dropout, MasksWeights, EvaluatesLinears, FusesLinears, CarriesStates {
 public:
  GuardedDropout(config::SlotConfig slot, Dropout& dropout) : slot_(std::move(slot)), dropout_(dropout) {
    common = dropout.common;
  }
  void open(const DropoutPlaces& places) override { dropout_.open(places); }  // open_dropout guards it
  at::Tensor apply(const at::Tensor& x, std::size_t site, const DropoutCall& call) override {
    return alone([&] { return dropout_.apply(x, site, call); });
  }
  MasksWeights* masks_weights() override { return dropout_.masks_weights() ? this : nullptr; }
  EvaluatesLinears* evaluates_linears() override { return dropout_.evaluates_linears() ? this : nullptr; }
  FusesLinears* fuses_linears() override { return dropout_.fuses_linears() ? this : nullptr; }
  CarriesStates* carries_states() override { return dropout_.carries_states() ? this : nullptr; }

 private:
  template <class Call>
  at::Tensor alone(Call&& call) {
    const std::lock_guard lock(mutex_);
    return guarded(slot_, 0, call);
  }
  at::Tensor mask_weight(const at::Tensor& weight, std::size_t index, const DropoutCall& call) override {
    return alone([&] { return dropout_.masks_weights()->mask_weight(weight, index, call); });
  }
  at::Tensor evaluate_linear(const at::Tensor& x, const at::Tensor& weight,
                             const std::optional<at::Tensor>& bias, const Activation& activation,
                             std::size_t index, const DropoutCall& call) override {
    return alone([&] {
      return dropout_.evaluates_linears()->evaluate_linear(x, weight, bias, activation, index, call);
    });
  }
  bool fuses(std::size_t linear) const override { return dropout_.fuses_linears()->fuses(linear); }
  at::Tensor masked_linear(const at::Tensor& x, const at::Tensor& weight,
                           const std::optional<at::Tensor>& bias, std::size_t linear,
                           const DropoutCall& call) override {
    return alone([&] { return dropout_.fuses_linears()->masked_linear(x, weight, bias, linear, call); });
  }
  at::Tensor carry(const at::Tensor& before, const at::Tensor& now, std::size_t cell, bool memory,
                   std::int64_t time, const DropoutCall& call) override {
    return alone([&] { return dropout_.carries_states()->carry(before, now, cell, memory, time, call); });
  }

  const config::SlotConfig slot_;
  Dropout& dropout_;
  std::mutex mutex_;
};

/// Opens a dropout plugin for a network, which then only needs set_dropout. The plan owns the guard.
inline std::shared_ptr<const DropoutPlan> open_dropout(const config::SlotConfig& slot, Dropout& plugin,
                                                       const Network& network, const RunScale& scale) {
  auto dropout = std::make_shared<GuardedDropout>(slot, plugin);
  auto* plan = guarded(slot, 0, [&] { return new DropoutPlan(*dropout, network.dropout_places(), scale); });
  return {plan, [dropout](const DropoutPlan* opened) { delete opened; }};
}

/// Returns a rule as the recorder knows it, which calls it within the guard of the rule's own slot.
inline NamedRule named_rule(ActivePlugin& plugin) {
  return {plugin.slot().id, &plugin.as<Rule>(),
          [slot = plugin.slot(), object = plugin.object()](const std::function<void()>& call) {
            if (const auto held = object.lock()) guarded(slot, 0, call);
          }};
}

}  // namespace trainyard::train
