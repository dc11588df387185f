#include "core/engine/train/device.hpp"

#include <trainyard/batch.hpp>

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <dlfcn.h>

#include <trainyard/error.hpp>

namespace trainyard::train {

at::Device make_device(const std::string& name) {
  const at::Device device(name == "cuda" ? "cuda:0" : name);
  if (device.is_cpu()) return device;
  const std::string wanted = "run.device = \"" + name + "\": ";
  const std::string mend = "; set run.device = \"cpu\"";
  if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr)
    throw ConfigError(wanted + "LibTorch's CUDA library does not load (" + dlerror() + ")" + mend);
  const at::DeviceIndex count = at::detail::getCUDAHooks().deviceCount();
  if (device.index() >= count)
    throw ConfigError(wanted + "this machine has " + std::to_string(count) + " usable GPUs" + mend);
  return device;
}

void move_to(at::Device device, Batch& batch) {
  if (device.is_cpu()) return;
  for (at::Tensor& input : batch.inputs) input = input.to(device, /*non_blocking=*/true);
  batch.target = batch.target.to(device, /*non_blocking=*/true);
}

}  // namespace trainyard::train
