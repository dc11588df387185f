// Statistics of tensors on a CUDA device, computed there; they are read when the loop is elsewhere already.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include <trainyard/statistics.hpp>

namespace trial {

using namespace trainyard;

class DeviceStatistics {
 public:
  DeviceStatistics();
  ~DeviceStatistics();

  /// Puts a tensor on the list. False for one that the kernel does not take: not on a CUDA device, not on
  /// that of the others, of another dtype, with gaps between its elements.
  bool add(std::size_t tensor, const at::Tensor& values);
  /// One pass over all that are on the list, behind what the device was given so far; does not wait. From
  /// then on they may change or go: what the device is given later comes after it.
  void launch();
  /// Whether there are results to come.
  bool any() const;
  /// Calls `take` with each tensor's number; waits for the device. Afterwards it is as new.
  void results(const std::function<void(std::size_t, const Statistics&)>& take);

 private:
  struct State;
  /// Null until the first tensor that it takes: a run on the CPU asks CUDA nothing.
  std::unique_ptr<State> state_;
};

}  // namespace trial
