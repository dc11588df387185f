// Makes c10d's NCCL backend (core/engine/distributed/nccl.hpp).
#include <nccl.h>
#include <torch/csrc/cuda/nccl.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include <cstdlib>
#include <string>

#include <trainyard/error.hpp>

#include "core/engine/distributed/nccl.hpp"

namespace {

using namespace trainyard;

/// Keeps c10d's own watchdog from ending the process and from writing traces, as the host watches over the
/// ranks itself. Only environment variables can say so.
void quiet_watchdog() {
  for (const char* name :
       {"TORCH_NCCL_BLOCKING_WAIT", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_ENABLE_MONITORING",
        "TORCH_NCCL_DUMP_ON_TIMEOUT", "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC"})
    setenv(name, "0", 1);
}

std::string text(std::uint64_t version) {
  return std::to_string(version >> 32) + "." + std::to_string(version >> 16 & 0xFFFF);
}

/// Throws ConfigError for an nccl.h other than LibTorch's: c10d's classes made here would differ in size.
void check_header() {
  constexpr std::uint64_t here = std::uint64_t{NCCL_MAJOR} << 32 | std::uint64_t{NCCL_MINOR} << 16;
  const std::uint64_t there = torch::cuda::nccl::version();
  if (here >> 16 != there >> 16)
    throw ConfigError("this build has nccl.h of NCCL " + text(here) + ", and LibTorch that of " +
                      text(there) + ": install the latter, and build again");
}

}  // namespace

extern "C" __attribute__((visibility("default"))) c10d::Backend* trainyard_nccl(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, std::chrono::milliseconds timeout) {
  check_header();
  quiet_watchdog();
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  distributed::Backend made =
      c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, std::move(options));
  return made.release();
}

// The host calls the function with this type.
static_assert(std::is_same_v<decltype(trainyard_nccl), distributed::MakeNccl>);
