#include "core/cli/listening.hpp"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include <trainyard/error.hpp>

namespace trainyard::control {

Listening::Listening() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (socket_ < 0 || bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      listen(socket_, SOMAXCONN) != 0 ||
      getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    if (socket_ >= 0) close(socket_);
    throw Error(ExitCode::distributed, "no port of this machine is to be had for the ranks to meet at");
  }
  port_ = ntohs(address.sin_port);
}

Listening::~Listening() {
  if (socket_ >= 0) close(socket_);
}

int Listening::release() {
  return std::exchange(socket_, -1);
}

}  // namespace trainyard::control
