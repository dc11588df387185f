// A training as a child process: how it is started, what it is told, how it ended. Torch-free.
#pragma once

#include <sys/types.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <vector>

namespace trainyard::control {

/// For its lifetime signals wait to be asked for: those that a training is told, and SIGCHLD.
class HeldSignals {
 public:
  HeldSignals();
  ~HeldSignals() { sigprocmask(SIG_SETMASK, &before_, nullptr); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  const sigset_t& before() const { return before_; }
  /// The next signal; 0 where none comes in that time.
  int next(std::optional<std::chrono::milliseconds> limit = {}) const;

 private:
  sigset_t held_, before_;
};

/// In a process group of its own: a terminal sends its signals to the parent alone, which hands them on once.
/// The child has what is in the environment now, and ends in order when its parent dies. `keeps`: open files
/// that it has as well. `output`: a file that all it prints goes to, in place of the parent's streams. Throws Error.
pid_t start(const std::vector<std::string>& words, const HeldSignals& signals,
            const std::vector<int>& keeps = {}, const std::string& output = {});

/// In the child.
void follow_parent();

struct End {
  pid_t child = 0;
  int status = 0;
  bool asked = false;  ///< somebody wanted it to end

  bool by_signal() const { return WIFSIGNALED(status); }
  int signal() const { return WTERMSIG(status); }
  int code() const { return by_signal() ? 128 + signal() : WEXITSTATUS(status); }
  /// By itself, that is: not sent by somebody who wants the run to end.
  bool crashed() const;
  std::string text() const;
};

}  // namespace trainyard::control
