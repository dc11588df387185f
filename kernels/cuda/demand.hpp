// Turns CUDA's errors into exceptions.
#pragma once

#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

namespace trainyard::kernels::cuda {

inline void demand(cudaError_t result) {
  if (result != cudaSuccess) throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(result));
}

}  // namespace trainyard::kernels::cuda
