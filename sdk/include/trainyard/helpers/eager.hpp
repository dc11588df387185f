// The plain way through a step: each micro-batch forward and backward, then one update. It is for executors
// that do something else only now and then, and go this way otherwise.
#pragma once

#include <trainyard/executor.hpp>

namespace trainyard {

class Eager : public Executor {
 public:
  /// Declares all that hooks can ask of a step; for `describe` of an executor that always goes this way.
  template <class Options>
  static void offer_all(Manifest<Options>& m) {
    m.fires(micro_events);
    for (const char* feature :
         {"taps", "losses", "predictions", "grads", "hyper", "batch", "outputs", "model"})
      m.provides(feature);
  }

  void step(Workbench& bench, StepWork& work) override {
    do
      for (std::size_t i = 0; i < work.micros.size(); ++i) bench.backward(work, i);
    while (bench.update() == Update::repeat);
  }
};

}  // namespace trainyard
