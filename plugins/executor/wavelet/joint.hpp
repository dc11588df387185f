// One update of a step from the gradients of both waves, which read the same weights: what one batch gives. A gradient
// to which neither wave adds any more is whole: over several ranks it leaves while the waves compute the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "crew.hpp"
#include "rule.hpp"

namespace wavelet {

class Joint final : public Rule {
 public:
  explicit Joint(Crew& crew) : crew_(crew) {}

  /// Micro-batches go to tick and tock in turn.
  void step(StepWork& work) override {
    Workbench& bench = crew_.bench();
    Wave &tick = crew_.wave(0), &tock = crew_.wave(1);
    bool repeated = false;
    do {
      start(work);
      crew_.finish({&tick, &tock});
      if (!std::exchange(repeated, true)) crew_.report(work, {&tick, &tock});
      for (std::size_t i = 0; i < missing_.size(); ++i)
        if (missing_[i] > 0) add_up(i);
    } while (bench.update() == Update::repeat);
  }

 private:
  void start(const StepWork& work) {
    std::vector<MicroPass> places[most_waves];
    passes_ += passes_ % 2;  // tick has the even numbers
    for (const std::size_t micro : Crew::counted(work)) {
      places[passes_ % 2].push_back({micro, passes_});
      ++passes_;
    }
    for (const at::Tensor& parameter : crew_.parameters()) parameter.mutable_grad().reset();
    missing_.assign(crew_.parameters().size(), places[1].empty() ? 1 : 2);
    for (int wave = 0; wave < most_waves; ++wave)
      crew_.wave(wave).start(work, std::move(places[wave]), crew_.bench().loss_scale(),
                             [this](std::size_t parameter) { count(parameter); });
  }

  /// A wave adds no more to a gradient. Its thread.
  void count(std::size_t parameter) {
    const std::lock_guard lock(mutex_);
    if (--missing_[parameter] > 0) return;
    add_up(parameter);
    crew_.bench().is_whole(parameter);
  }

  /// Whichever wave was the first: the sum of two numbers does not depend on it.
  void add_up(std::size_t parameter) const {
    at::Tensor sum = crew_.wave(0).take_gradient(parameter);
    const at::Tensor other = crew_.wave(1).take_gradient(parameter);
    if (sum.defined() && other.defined()) sum.add_(other);
    crew_.parameters()[parameter].mutable_grad() = sum.defined() ? sum : other;
  }

  Crew& crew_;
  std::int64_t passes_ = 0;
  std::mutex mutex_;
  std::vector<int> missing_;  ///< waves that may still add to a gradient
};

}  // namespace wavelet
