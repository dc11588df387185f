// The device of a run, and what goes there.
#pragma once

#include <string>

#include <c10/core/Device.h>

namespace trainyard {
struct Batch;
}

namespace trainyard::train {

/// "cpu", "cuda" or "cuda:N". LibTorch's CUDA half is loaded here, when it is asked for and not before.
/// Throws ConfigError where there is no such device.
at::Device make_device(const std::string& name);

/// From the loader to the device, without waiting for it.
void move_to(at::Device device, Batch& batch);

}  // namespace trainyard::train
