#include "nvml.hpp"

#include <cstdio>
#include <cstdlib>

namespace {

/// What a process of its own is to see: MADE_GPUS = "USE/USED USE/USED GROWTH" of two GPUs.
trainyard::test::MadeGpus from_environment() {
  trainyard::test::MadeGpus gpus;
  const char* text = std::getenv("MADE_GPUS");
  if (text == nullptr) return gpus;
  const int read = std::sscanf(text, "%u/%llu %u/%llu %llu", &gpus.use[0], &gpus.used[0], &gpus.use[1],
                               &gpus.used[1], &gpus.growth);
  gpus.count = read == 5 ? 2 : 0;
  return gpus;
}

}  // namespace

extern "C" {

trainyard::test::MadeGpus made_gpus = from_environment();

int nvmlInit_v2() {
  if (made_gpus.init == 0) ++made_gpus.opened;
  return made_gpus.init;
}

int nvmlShutdown() {
  --made_gpus.opened;
  return 0;
}

int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = made_gpus.count;
  return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = &made_gpus.use[index];
  return 0;
}

int nvmlDeviceGetUtilizationRates(void* device, unsigned* rates) {
  rates[0] = *static_cast<unsigned*>(device);
  rates[1] = 1;  // of the time that memory was read or written: not what is asked
  return 0;
}

int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* memory) {
  unsigned long long& used = made_gpus.used[static_cast<unsigned*>(device) - made_gpus.use];
  memory[0] = made_gpus.total;
  memory[1] = made_gpus.total - used;
  memory[2] = used;
  used += made_gpus.growth;
  return 0;
}
}
