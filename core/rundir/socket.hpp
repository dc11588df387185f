// Locates the control socket of a run directory, for both ends.
#pragma once

#include <string>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "lib/descriptor.hpp"

namespace trainyard::control {

constexpr const char* socket_name = "ctl.sock";

using lib::Descriptor;

/// Opens a folder in which to find a socket; the result is false, with errno set, where there is none.
inline Descriptor open_folder(const std::string& path) {
  return Descriptor(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
}

/// Returns the address of the control socket in an open folder. An address holds 107 bytes and a path may be
/// longer, so it goes through the descriptor, which must stay open while the address is used.
inline sockaddr_un address_in(const Descriptor& folder) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = "/proc/self/fd/" + std::to_string(folder.get()) + "/" + socket_name;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  return address;
}

}  // namespace trainyard::control
