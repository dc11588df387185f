#include "gpu.hpp"

#include <algorithm>

#include "machine.hpp"

namespace trial {
namespace {

// As nvml.h has them; it comes with CUDA only.
extern "C" {
using Result = int;  // 0: success
using Device = void*;
struct Utilization {
  unsigned gpu, memory;  // percent
};
struct Memory {
  unsigned long long total, free, used;  // bytes
};
using Init = Result();
using Shutdown = Result();
using GetCount = Result(unsigned*);
using GetHandle = Result(unsigned, Device*);
using GetUtilization = Result(Device, Utilization*);
using GetMemory = Result(Device, Memory*);
}
constexpr const char* functions[] = {"nvmlInit_v2",
                                     "nvmlShutdown",
                                     "nvmlDeviceGetCount_v2",
                                     "nvmlDeviceGetHandleByIndex_v2",
                                     "nvmlDeviceGetUtilizationRates",
                                     "nvmlDeviceGetMemoryInfo"};

}  // namespace

Gpus::Gpus(const std::string& library) {
  boost::system::error_code missing;
  library_.load(library, missing, boost::dll::load_mode::search_system_folders);
  const bool complete = !missing && std::all_of(std::begin(functions), std::end(functions),
                                                [&](const char* name) { return library_.has(name); });
  if (!complete || library_.get<Init>("nvmlInit_v2")() != 0) {
    library_.unload();
    return;
  }
  unsigned count = 0;
  if (library_.get<GetCount>("nvmlDeviceGetCount_v2")(&count) != 0) return;
  for (unsigned i = 0; i < count; ++i) {
    Device device = nullptr;
    if (library_.get<GetHandle>("nvmlDeviceGetHandleByIndex_v2")(i, &device) == 0) devices_.push_back(device);
  }
}

Gpus::~Gpus() {
  if (library_.is_loaded()) library_.get<Shutdown>("nvmlShutdown")();
}

std::vector<TensorRecord> Gpus::sample() const {
  std::vector<TensorRecord> records;
  std::vector<double> use, memory_use;
  for (const Device device : devices_) {
    Utilization utilization{};
    Memory memory{};
    if (library_.get<GetUtilization>("nvmlDeviceGetUtilizationRates")(device, &utilization) == 0)
      use.push_back(utilization.gpu);
    if (library_.get<GetMemory>("nvmlDeviceGetMemoryInfo")(device, &memory) == 0 && memory.total > 0)
      memory_use.push_back(100.0 * static_cast<double>(memory.used) / static_cast<double>(memory.total));
  }
  if (devices_.empty()) return records;
  if (use.size() == devices_.size()) records.push_back(numbers("system/gpu", use));
  if (memory_use.size() == devices_.size()) records.push_back(numbers("system/gpu_memory", memory_use));
  return records;
}

}  // namespace trial
