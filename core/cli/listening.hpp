// Opens the port of this machine on which the rendezvous store of a run's ranks listens, before they start,
// so that nobody else takes it.
#pragma once

#include <cstdint>

namespace trainyard::control {

/// A socket that listens on a free port of the loopback interface; closed on destruction.
class Listening {
 public:
  /// Throws Error if no port is available.
  Listening();
  ~Listening();
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;

  int socket() const { return socket_; }
  std::uint16_t port() const { return port_; }
  /// Returns the socket, which the caller then has to close.
  int release();

 private:
  int socket_ = -1;
  std::uint16_t port_ = 0;
};

}  // namespace trainyard::control
