// Tracks the newest of a kernel's launches, which follow each other on one device.
#pragma once

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

#include "kernels/cuda/demand.hpp"

namespace trainyard::kernels::cuda {

/// The destructor waits for the launch, so declare it after the memory that the launch uses.
class LastLaunch {
 public:
  LastLaunch() = default;
  ~LastLaunch() {
    if (event_ == nullptr) return;
    cudaEventSynchronize(event_);
    cudaEventDestroy(event_);
  }
  LastLaunch(const LastLaunch&) = delete;
  LastLaunch& operator=(const LastLaunch&) = delete;

  /// Requires the current device to be that of the first call; throws std::invalid_argument with the kernel's
  /// name for another one.
  void demand_device(const char* kernel) {
    int current = 0;
    demand(cudaGetDevice(&current));
    if (event_ == nullptr) {
      demand(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
      device_ = current;
    }
    if (current != device_)
      throw std::invalid_argument(std::string(kernel) + ": launched on device " + std::to_string(current) +
                                  ", expected " + std::to_string(device_) + " as before");
  }

  /// Takes the work in the stream so far for the launch. Call this and the rest after demand_device.
  void record(cudaStream_t stream) { demand(cudaEventRecord(event_, stream)); }
  void wait() const { demand(cudaEventSynchronize(event_)); }
  bool ready() const {
    const cudaError_t state = cudaEventQuery(event_);
    if (state == cudaErrorNotReady) {
      cudaGetLastError();  // not an error
      return false;
    }
    demand(state);
    return true;
  }

 private:
  cudaEvent_t event_ = nullptr;
  int device_ = -1;
};

}  // namespace trainyard::kernels::cuda
