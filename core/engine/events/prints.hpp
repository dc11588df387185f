// What plugins print, in place of lines that come from nowhere and tear the progress line apart.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace trainyard::events {

/// While it lives, what a plugin's code prints by the standard streams of C and C++ comes to `take`, line by line,
/// with the plugin's name; what the host and the sinks print goes where it went. A write to the file descriptors
/// themselves goes past it. One a process at a time; made and destroyed on the loop thread.
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
