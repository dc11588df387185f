// Stands in the place of LibTorch's header under ThreadSanitizer, which does not see how OpenMP's threads wait for each other, and which
// therefore ignores all that they do: here at::parallel_for starts threads of the standard library and joins them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include <ATen/Config.h>
#include <omp.h>

#define INTRA_OP_PARALLEL

namespace at::internal {

/// None of the work is the calling thread's, whose stack may have LibTorch in it: such reports are suppressed.
template <typename F>
inline void invoke_parallel(std::int64_t begin, std::int64_t end, std::int64_t grain_size, const F& f) {
  std::int64_t count = at::get_num_threads();
  if (grain_size > 0) count = std::min(count, divup(end - begin, grain_size));
  const std::int64_t chunk = divup(end - begin, count);
  std::mutex mutex;
  std::exception_ptr error;
  std::vector<std::thread> threads;
  for (std::int64_t i = 0; begin + i * chunk < end; ++i)
    threads.emplace_back([&, i] {
      omp_set_num_threads(1);  // a loop within this one is this thread's alone
      const internal::ThreadIdGuard number(static_cast<int>(i));
      const std::int64_t first = begin + i * chunk;
      try {
        f(first, std::min(end, first + chunk));
      } catch (...) {
        const std::lock_guard lock(mutex);
        error = std::current_exception();
      }
    });
  for (std::thread& each : threads) each.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace at::internal
