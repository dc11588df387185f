// Catches what plugins print: lines without an origin would tear the progress line apart.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace trainyard::events {

/// While it lives, lines that a plugin's code prints by the standard streams of C and C++ go to `take`, with
/// the plugin's name; those of the host and the sinks go where they went. A write to the file descriptors is
/// not caught. One per process at a time; made and destroyed on the loop thread.
class Prints {
 public:
  using Take = std::function<void(std::string_view plugin, std::string_view line)>;

  /// `take` is called on the thread that prints, and must not print by these streams itself.
  explicit Prints(Take take);
  ~Prints();
  Prints(const Prints&) = delete;
  Prints& operator=(const Prints&) = delete;
};

}  // namespace trainyard::events
