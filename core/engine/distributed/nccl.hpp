// Collectives of tensors on GPUs, by c10d's NCCL. They are in a library of their own (core/nccl), which only
// runs of several ranks on GPUs load: nothing else needs CUDA's libraries.
#pragma once

#include <chrono>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "core/engine/distributed/group.hpp"

namespace trainyard::distributed {

/// The type of the function that the library exports as `trainyard_nccl`. The caller owns the result.
using MakeNccl = c10d::Backend*(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                std::chrono::milliseconds timeout);

/// Returns the path of the library in this installation.
std::string nccl_library();

/// Loads the library. Throws ConfigError, which says what to install, if it is missing or does not load.
MakeNccl* load_nccl(const std::string& path);

}  // namespace trainyard::distributed
