#include "core/engine/train/device.hpp"

#include <trainyard/batch.hpp>

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include <utility>
#include <vector>

#include <trainyard/error.hpp>
#include <trainyard/ranks.hpp>

namespace trainyard::train {
namespace {

/// The libraries that LibTorch's CUDA half needs beside CUDA's toolkit, and the packages that have them.
constexpr std::pair<const char*, const char*> packages[] = {{"libnccl.", "nvidia-nccl-cu13"},
                                                            {"libcudnn", "nvidia-cudnn-cu13"},
                                                            {"libcufile.", "nvidia-cufile"},
                                                            {"libcusparseLt.", "nvidia-cusparselt-cu13"},
                                                            {"libnvshmem", "nvidia-nvshmem-cu13"}};

std::string wanted(const std::string& name) {
  return "run.device = \"" + name + "\": ";
}

/// Returns what to install, according to the loader's message.
std::string what_to_install(const std::string& error) {
  for (const auto& [library, package] : packages)
    if (error.find(library) != std::string::npos)
      return std::string("; install it (pip install ") + package +
             ") and name its folder in LD_LIBRARY_PATH, or ";
  return "; install CUDA's libraries, or ";
}

void copy_to(at::Device device, const std::vector<at::Tensor*>& all) {
  const c10::impl::VirtualGuardImpl streams(device.type());
  static const c10::Stream copies = streams.getStreamFromGlobalPool(device);
  const c10::Stream computes = streams.getStream(device);
  {
    const c10::StreamGuard guard(copies);
    for (at::Tensor* tensor : all) *tensor = tensor->to(device, /*non_blocking=*/true);
  }
  c10::Event copied(device.type());
  copied.record(copies);
  copied.block(computes);
  for (const at::Tensor* tensor : all)
    tensor->record_stream(computes);  // else their memory is reused too early
}

}  // namespace

at::Device choose_device(const std::string& name, int gpus, const Ranks* ranks) {
  const std::string found = std::to_string(gpus) + " usable GPUs";
  if (name == "cuda" && ranks != nullptr) {
    if (ranks->local_size() > gpus)
      throw ConfigError(wanted(name) + "each of the " + std::to_string(ranks->local_size()) +
                        " ranks of this machine needs a GPU, and it has " + found +
                        "; start no more ranks than that, or set run.device = \"cpu\"");
    return {at::kCUDA, static_cast<at::DeviceIndex>(ranks->local_rank())};
  }
  const at::Device device(name == "cuda" ? "cuda:0" : name);
  if (device.index() >= gpus)
    throw ConfigError(wanted(name) + "this machine has " + found + "; set run.device = \"cpu\"");
  return device;
}

at::Device make_device(const std::string& name, const Ranks* ranks) {
  if (name == "cpu") return at::kCPU;
  if (dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    const std::string error = dlerror();
    throw ConfigError(wanted(name) + "LibTorch's CUDA library does not load (" + error + ")" +
                      what_to_install(error) + "set run.device = \"cpu\"");
  }
  const at::Device device = choose_device(name, at::detail::getCUDAHooks().deviceCount(), ranks);
  c10::impl::VirtualGuardImpl(device.type()).setDevice(device);  // for calls that name no device
  return device;
}

void move_to(at::Device device, at::ScalarType floats, Batch& batch) {
  std::vector<at::Tensor*> all;
  for (at::Tensor& input : batch.inputs) all.push_back(&input);
  if (batch.target.defined()) all.push_back(&batch.target);
  if (!device.is_cpu()) copy_to(device, all);
  for (at::Tensor* tensor : all)
    if (floats == at::kDouble && tensor->is_floating_point()) *tensor = tensor->to(floats);
}

}  // namespace trainyard::train
