#include "kernels/cuda/device.hpp"

#include <cuda_runtime.h>

namespace trainyard::kernels::cuda {
namespace {

__global__ void nothing() {}

}  // namespace

bool available() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) return false;
  cudaFuncAttributes attributes;
  if (cudaFuncGetAttributes(&attributes, nothing) == cudaSuccess) return true;
  cudaGetLastError();  // clears the error for later calls
  return false;
}

}  // namespace trainyard::kernels::cuda
