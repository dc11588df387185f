// Starts a training as a child process, sends it signals, and tells how it ended. Torch-free.
#pragma once

#include <sys/types.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace trainyard::control {

/// Blocks, while it lives, the signals that are handed on to a training, and SIGCHLD, for next() to fetch.
class HeldSignals {
 public:
  HeldSignals();
  ~HeldSignals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  const sigset_t& before() const { return before_; }
  /// Waits for the next signal; returns 0 if none comes within `limit`.
  int next(std::optional<std::chrono::milliseconds> limit = {}) const;

 private:
  sigset_t held_, before_;
};

/// Starts a child in a process group of its own: a terminal signals only the parent, which passes signals on
/// once. The child gets the current environment, and ends in order when its parent dies. `keeps`: open files
/// that it inherits. `output`: a file for its output, in place of the parent's streams. Throws Error.
pid_t start(const std::vector<std::string>& words, const HeldSignals& signals,
            const std::vector<int>& keeps = {}, const std::string& output = {});

/// Returns whether this process has one thread, so that a copy of it is whole.
bool can_fork();

/// Starts a child as a copy of this process, which has one thread (can_fork()). The child does `work`, with its
/// output in a file and no other file open, and ends with the exit code that it returns. Throws Error.
pid_t start(const std::function<int()>& work, const HeldSignals& signals, const std::string& output);

/// Makes this process, a child, end when its parent dies.
void follow_parent();

struct End {
  pid_t child = 0;
  int status = 0;
  bool asked = false;  ///< someone asked it to end

  bool by_signal() const { return WIFSIGNALED(status); }
  int signal() const { return WTERMSIG(status); }
  int code() const { return by_signal() ? 128 + signal() : WEXITSTATUS(status); }
  /// Returns whether it ended by a fault of its own, not a signal from someone who wanted the run to end.
  bool crashed() const;
  std::string text() const;
};

}  // namespace trainyard::control
