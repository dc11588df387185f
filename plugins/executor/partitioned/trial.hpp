// Passes of training that are timed and have no effect: on weights, gradients, running statistics or metrics.
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/executor.hpp>

namespace partitioned {

class Trial {
 public:
  /// It borrows the batch.
  Trial(trainyard::Workbench& bench, const trainyard::Batch& batch, const trainyard::ForwardContext& pass);
  /// Puts running statistics back.
  ~Trial();
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  /// Runs the network, or `forward` in its place, the loss and both backward, and goes over weights and gradients once as an
  /// update does. Returns what it took.
  double microseconds(const trainyard::ForwardPass& forward);
  /// Begins the second anew after which the trial is long.
  void restart() { begin_ = std::chrono::steady_clock::now(); }
  /// Returns whether the trial has gone on for a second.
  bool is_long() const;

 private:
  trainyard::Workbench& bench_;
  const trainyard::Batch& batch_;
  const trainyard::ForwardContext pass_;
  std::vector<at::Tensor> parameters_;
  std::vector<std::pair<at::Tensor, at::Tensor>> buffers_;  ///< and as they were
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace partitioned
