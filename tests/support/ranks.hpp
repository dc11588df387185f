// Several ranks in one process, each on a thread: what a test of exchanges needs.
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "core/cli/listening.hpp"
#include "core/engine/distributed/world.hpp"

namespace trainyard::test {

/// Catch's assertions are for one thread.
inline std::mutex checking;
#define CHECK_HERE(...)                                      \
  do {                                                       \
    const std::lock_guard lock(::trainyard::test::checking); \
    CHECK(__VA_ARGS__);                                      \
  } while (false)
/// The expression exchanges nothing: one rank has it behind the other.
#define CHECK_THROWS_HERE(expression, type)                  \
  do {                                                       \
    const std::lock_guard lock(::trainyard::test::checking); \
    CHECK_THROWS_AS(expression, type);                       \
  } while (false)

/// Calls `body` on each of so many ranks, `local` of them a machine (0: all), perhaps fewer on the last one; rethrows
/// what the first threw.
inline void on_ranks(int ranks, const std::function<void(distributed::World&)>& body, int local = 0,
                     distributed::World::Pulse pulse = {},
                     std::chrono::seconds timeout = std::chrono::seconds(60)) {
  setenv("TORCH_FR_BUFFER_SIZE", "0", 1);  // c10d's record of a process's collectives is for one thread
  control::Listening store;
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      at::set_num_threads(1);  // teams of threads that spin would wait for one another's cores
      try {
        config::RankPlace place{.rank = rank, .size = ranks, .local_rank = rank, .local_size = ranks};
        if (local > 0) place.local_rank = rank % local;
        if (local > 0) place.local_size = std::min(local, ranks - rank / local * local);
        place.port = store.port();
        place.serves = rank == 0;
        if (rank == 0) place.listening = store.release();
        distributed::World world(place, timeout, pulse);
        body(world);
        world.gather("done");  // rank 0 holds the store
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace trainyard::test
