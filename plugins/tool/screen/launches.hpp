// Starts the shares of a screening on other machines, by the launcher that the place has, and waits for them.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "share.hpp"

namespace screen {

/// Returns the command line that this process was started with; its first word is the program's own path.
std::vector<std::string> own_command();

/// Each share is this process's own command with --share. One that a launcher refuses, or whose machine goes down, is
/// started again, up to four times, after 1, 2, 4 and 8 seconds.
class Launches {
 public:
  struct Plan {
    std::string launch;  ///< a line of a shell with {command} in it, and with {number} if it likes
    std::string folder;  ///< for scripts, and for what they say of errors; it is made
    std::vector<std::string> command;  ///< that a share is added to
    std::size_t shares = 1;
  };
  /// Takes a sentence on a share that was lost or that failed.
  using Tell = std::function<void(const std::string&)>;

  Launches(Plan plan, Tell tell);
  /// Ends those that are going.
  ~Launches();
  Launches(const Launches&) = delete;
  Launches& operator=(const Launches&) = delete;

  /// Starts what is to be started and hears of what has ended; returns whether any share is left. Called every while.
  bool go_on();
  /// Asks all to end, and waits until they have. None is started any more.
  void end();

 private:
  struct Launch {
    Share share;
    pid_t process = 0;  ///< 0: it is not going
    bool over = false;
    int times_lost = 0;
    std::chrono::steady_clock::time_point begins;
  };
  void start(Launch& launch);
  void hear(Launch& launch, int status);
  std::string log_of(const Launch& launch) const;

  Plan plan_;
  Tell tell_;
  std::vector<Launch> launches_;
};

}  // namespace screen
