// The client end of the control socket: sends requests to a live run.
#pragma once

#include <chrono>
#include <stdexcept>
#include <string>

#include "core/rundir/protocol.hpp"
#include "core/rundir/socket.hpp"

namespace trainyard::control {

/// No run answers: there is no socket, its process is dead, it went away, or it took too long.
struct NoAnswer : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The run has read the request and refuses it.
struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// One connection, used by one thread. Throws NoAnswer and Refused.
class Client {
 public:
  explicit Client(const std::string& run_directory);

  /// Sends a request, giving it an id, and waits for its result.
  Json ask(Request request, std::chrono::milliseconds timeout);

 private:
  using Deadline = std::chrono::steady_clock::time_point;

  /// Waits until the socket is ready; throws NoAnswer with `late` if it is not by then.
  void await(short events, Deadline deadline, const std::string& late) const;
  std::string next_line(Deadline deadline, const std::string& late);

  Descriptor socket_;
  std::int64_t last_id_ = 0;
  std::string in_;
};

}  // namespace trainyard::control
