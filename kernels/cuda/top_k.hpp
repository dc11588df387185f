// Does the selection of kernels/cpu/top_k.hpp on a CUDA device, by the same search (kernels/bisection.hpp),
// which also runs on the device: the host waits for nothing.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/selection.hpp"

namespace trainyard::kernels::cuda {

/// Selects, with device memory that is kept from call to call: some 50 KB, 16 bytes for each 4096 elements of
/// the longest tensor so far, and for Method::exact, which sorts the keys, twelve bytes for each element. It
/// grows in the first calls, which may wait for the device. Not for two threads at once, nor for two streams:
/// selections follow one another. All calls belong to the device that is current at the first selection.
///
/// Results depend on the arguments alone: those of the exact methods equal the CPU's, those of mstopk but for
/// the last bits of the mean that it begins at. Every pass is launched, those that nothing is left to do for
/// end at once: `passes` counts what was read. Radix and bisections gather in two passes, counted as one.
class TopK {
 public:
  TopK();
  /// Waits for the selection in progress.
  ~TopK();
  TopK(const TopK&) = delete;
  TopK& operator=(const TopK&) = delete;

  /// Enqueues on `stream` (a cudaStream_t) the selection of exactly k of the `count` elements at x, in device
  /// memory, 0 <= k <= count < 2^31: `indices`, ascending, and `values`, with room for k each. The memory
  /// must stay until the stream is past it. `random` as on the CPU. Throws std::invalid_argument for sizes and a
  /// `how` that are not as described, std::runtime_error with CUDA's message for what fails there.
  void select(const float* x, std::int64_t count, const Selection& how, std::uint64_t random, std::int64_t k,
              std::int32_t* indices, float* values, void* stream);

  /// Returns the result of the newest selection; the only call that waits for it.
  Selected selected() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Enqueues into[indices[j]] += values[j], in device memory. Indices come at most once in a call, as of one
/// selection, so that sums of several are added in the order of the calls; each must be of `into`, which
/// is not looked at here.
void scatter_add(const float* values, const std::int32_t* indices, std::int64_t count, float* into,
                 void* stream);

/// Enqueues in[indices[j]] = 0, in device memory.
void zero_at(const std::int32_t* indices, std::int64_t count, float* in, void* stream);

}  // namespace trainyard::kernels::cuda
