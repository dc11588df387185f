// The device of a run, and the transfer of batches to it.
#pragma once

#include <string>

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

namespace trainyard {
struct Batch;
class Ranks;
}  // namespace trainyard

namespace trainyard::train {

/// Returns "cpu", "cuda:N", or for "cuda" the GPU with the number of this rank on its machine. `ranks` is
/// null for a single rank. LibTorch's CUDA half is loaded here, only if it is asked for. Throws ConfigError
/// if there is no such device.
at::Device make_device(const std::string& name, const Ranks* ranks);

/// Returns the device on a machine with so many GPUs.
at::Device choose_device(const std::string& name, int gpus, const Ranks* ranks);

/// Moves a batch from the loader to the device without waiting: on a stream of its own, so that a batch is
/// copied while the device computes on the one before; later computations wait for the copy. If `floats` is
/// double, all floating-point tensors become double; others stay as the data have them (half precision, too).
void move_to(at::Device device, at::ScalarType floats, Batch& batch);

}  // namespace trainyard::train
