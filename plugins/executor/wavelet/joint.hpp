// One update of a step from the gradients of both waves, which read the same weights: what one batch gives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "crew.hpp"

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
      std::vector<Place> places[most_waves];
      passes_ += passes_ % 2;  // tick has the even numbers
      for (const std::size_t micro : Crew::counted(work)) {
        places[passes_ % 2].push_back({micro, passes_});
        ++passes_;
      }
      tick.start(work, std::move(places[0]), bench.loss_scale());
      tock.start(work, std::move(places[1]), bench.loss_scale());
      crew_.finish({&tick, &tock});
      if (!std::exchange(repeated, true)) crew_.report(work, {&tick, &tock});
      add_up(tick.take_gradients(), tock.take_gradients());
    } while (bench.update() == Update::repeat);
  }

 private:
  void add_up(std::vector<at::Tensor> sums, const std::vector<at::Tensor>& others) const {
    for (std::size_t i = 0; i < sums.size(); ++i) {
      if (sums[i].defined() && others[i].defined())
        sums[i].add_(others[i]);
      else if (others[i].defined())
        sums[i] = others[i];
      crew_.parameters()[i].mutable_grad() = sums[i];
    }
  }

  Crew& crew_;
  std::int64_t passes_ = 0;
};

}  // namespace wavelet
