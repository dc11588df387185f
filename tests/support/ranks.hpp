// Several ranks in one process, each on a thread: what a test of exchanges needs.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "core/engine/distributed/world.hpp"

namespace trainyard::test {

/// A socket that listens on a port of its own.
inline std::pair<int, std::uint16_t> listening() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (bind(socket, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(socket, 64) != 0 ||
      getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0)
    throw std::runtime_error("no port for a test");
  return {socket, ntohs(address.sin_port)};
}

/// Calls `body` on each of so many ranks, `local` of them a machine (0: all); rethrows what the first threw.
inline void on_ranks(int ranks, const std::function<void(distributed::World&)>& body, int local = 0) {
  setenv("TORCH_FR_BUFFER_SIZE", "0", 1);  // c10d's record of a process's collectives is for one thread
  const auto [socket, port] = listening();
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank, socket = socket, port = port] {
      try {
        config::RankPlace place{.rank = rank, .size = ranks, .local_rank = rank, .local_size = ranks};
        if (local > 0) place.local_rank = rank % local;
        if (local > 0) place.local_size = local;
        place.port = port;
        place.serves = rank == 0;
        if (rank == 0) place.listening = socket;
        distributed::World world(place, std::chrono::seconds(60));
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
