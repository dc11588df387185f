// Where the store of a run's ranks listens: a port of this machine, opened ahead of them, so that nobody else
// takes it.
#pragma once

#include <cstdint>

namespace trainyard::control {

/// A socket that listens on a port of its own, of the loopback interface; closed at the end.
class Listening {
 public:
  /// Throws Error where no port is to be had.
  Listening();
  ~Listening();
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;

  int socket() const { return socket_; }
  std::uint16_t port() const { return port_; }
  /// The socket, which is the caller's to close from here on.
  int release();

 private:
  int socket_ = -1;
  std::uint16_t port_ = 0;
};

}  // namespace trainyard::control
