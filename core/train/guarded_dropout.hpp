// A dropout plugin within the guard of its slot: the network calls it within the guard of the model.
#pragma once

#include <utility>

#include <trainyard/dropout.hpp>

#include "core/train/guard.hpp"

namespace trainyard::train {

class GuardedDropout final : public Dropout {
 public:
  GuardedDropout(config::SlotConfig slot, Dropout& dropout) : slot_(std::move(slot)), dropout_(dropout) {}
  void open(std::span<const DropoutSite> sites) override {
    guarded(slot_, 0, [&] { dropout_.open(sites); });
  }
  at::Tensor apply(const at::Tensor& x, std::size_t site, const RandomStream& random) override {
    return guarded(slot_, 0, [&] { return dropout_.apply(x, site, random); });
  }

 private:
  const config::SlotConfig slot_;
  Dropout& dropout_;
};

}  // namespace trainyard::train
