// Puts forms through convolutions (kernels/interval_conv.hpp) on a CUDA device.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/interval_conv.hpp"

namespace trainyard::kernels::cuda {

/// The weights of a layer in the memory of the current device.
class Weights {
 public:
  Weights(const double* host, std::int64_t count);
  ~Weights();
  const double* data() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Keeps device memory for the coefficients from call to call. Not for two threads at once.
class IntervalConvolution {
 public:
  IntervalConvolution();
  ~IntervalConvolution();

  /// `into` += forms `from`, both in host memory, as is `pixels`; `upward`: each operation rounds up, else to
  /// nearest. Waits for the result. Throws std::runtime_error with CUDA's message for what fails there.
  void add(const IntervalConv& conv, ConstIntervalRows from, const Weights& weights,
           const std::int64_t* pixels, IntervalRows into, bool upward);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trainyard::kernels::cuda
