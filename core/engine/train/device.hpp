// The device of a run, and what goes there.
#pragma once

#include <string>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

namespace trainyard {
struct Batch;
class Ranks;
}  // namespace trainyard

namespace trainyard::train {

/// "cpu", "cuda:N", or "cuda": of several ranks on a machine, each has the GPU of its number. `ranks`: null
/// for a single one. LibTorch's CUDA half is loaded here, when it is asked for and not before. Throws
/// ConfigError where there is no such device.
at::Device make_device(const std::string& name, const Ranks* ranks);

/// Which one it is on a machine with so many GPUs.
at::Device choose_device(const std::string& name, int gpus, const Ranks* ranks);

/// From the loader to the device, without waiting for it: on a stream of its own, so that a batch is copied while
/// the device computes on the one before; what is computed from now on waits for the copy. Where `floats` is double,
/// so become all numbers of floating point; others are left as the data have them (half precision, too).
void move_to(at::Device device, at::ScalarType floats, Batch& batch);

}  // namespace trainyard::train
