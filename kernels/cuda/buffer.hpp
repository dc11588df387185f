// Device memory, and pinned host memory, that grows and is kept from call to call.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <memory>

#include "kernels/cuda/demand.hpp"

namespace trainyard::kernels::cuda {

/// A buffer that loses its contents when it grows, which may wait for the device.
template <class Place>
class Buffer {
 public:
  /// Returns at least `bytes` of memory.
  unsigned char* at_least(std::size_t bytes) {
    if (bytes > size_) {
      memory_.reset();
      size_ = 0;
      void* memory = nullptr;
      demand(Place::allocate(&memory, bytes + bytes / 2));
      memory_.reset(static_cast<unsigned char*>(memory));
      size_ = bytes + bytes / 2;
    }
    return memory_.get();
  }

 private:
  std::unique_ptr<unsigned char, Place> memory_;
  std::size_t size_ = 0;
};

struct OnDevice {
  static cudaError_t allocate(void** memory, std::size_t bytes) { return cudaMalloc(memory, bytes); }
  void operator()(void* memory) const { cudaFree(memory); }
};
struct Pinned {
  static cudaError_t allocate(void** memory, std::size_t bytes) { return cudaMallocHost(memory, bytes); }
  void operator()(void* memory) const { cudaFreeHost(memory); }
};

using DeviceBuffer = Buffer<OnDevice>;
using PinnedBuffer = Buffer<Pinned>;

}  // namespace trainyard::kernels::cuda
