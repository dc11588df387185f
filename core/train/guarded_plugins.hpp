// Plugins within the guard of their own slots, where the host calls them within that of another, or on a
// thread that has none. They keep a copy of the slot: a swap may change it while a loader's thread is on its
// way.
#pragma once

#include <utility>

#include <trainyard/dataset.hpp>
#include <trainyard/dropout.hpp>
#include <trainyard/sampler.hpp>

#include "core/train/guard.hpp"

namespace trainyard::train {

/// For a loader: its threads have no guard around them.
class GuardedDataset final : public Dataset {
 public:
  GuardedDataset(config::SlotConfig slot, const Dataset& dataset)
      : slot_(std::move(slot)), dataset_(dataset) {}
  void open(const std::string&) override {}
  std::int64_t size() const override { return dataset_.size(); }
  BatchSchema schema() const override { return dataset_.schema(); }
  Batch read(std::span<const std::int64_t> indices, const ReadContext& context) const override {
    return guarded(slot_, 0, [&] { return dataset_.read(indices, context); });
  }

 private:
  const config::SlotConfig slot_;
  const Dataset& dataset_;
};

/// The loader calls it within the guard of the dataset.
class GuardedSampler final : public Sampler {
 public:
  GuardedSampler(config::SlotConfig slot, const Sampler& sampler)
      : slot_(std::move(slot)), sampler_(sampler) {}
  void open(const Source&) override {}
  std::int64_t size() const override {
    return guarded(slot_, 0, [&] { return sampler_.size(); });
  }
  void order(std::int64_t epoch, std::int64_t first, std::span<std::int64_t> out) const override {
    guarded(slot_, 0, [&] { sampler_.order(epoch, first, out); });
  }

 private:
  const config::SlotConfig slot_;
  const Sampler& sampler_;
};

/// The network calls it within the guard of the model.
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
