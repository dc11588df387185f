// How updates come of the gradients of waves.
#pragma once

#include <trainyard/executor.hpp>

namespace wavelet {

using namespace trainyard;

/// Loop thread.
class Rule {
 public:
  virtual ~Rule() = default;
  virtual void step(StepWork& work) = 0;
  /// Nothing is in flight afterwards, and the run's network has the weights.
  virtual void settle() {}
  virtual bool in_flight() const { return false; }
};

}  // namespace wavelet
