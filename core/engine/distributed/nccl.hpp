// Collectives of tensors on GPUs: NCCL's, by c10d. They lie in a library of their own (core/nccl), which is
// loaded by runs of several ranks on GPUs alone: nothing else needs CUDA's libraries.
#pragma once

#include <chrono>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "core/engine/distributed/group.hpp"

namespace trainyard::distributed {

/// What that library exports, as `trainyard_nccl`. The caller owns what it gives.
using MakeNccl = c10d::Backend*(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                std::chrono::milliseconds timeout);

/// Where this installation has it.
std::string nccl_library();

/// Throws ConfigError where there is none at that path or it does not load; says what to install.
MakeNccl* load_nccl(const std::string& path);

}  // namespace trainyard::distributed
