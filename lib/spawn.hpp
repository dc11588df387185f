// Starts programs: posix_spawn, whose attributes and actions free themselves.
#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

#include "lib/words.hpp"

namespace trainyard::lib {

/// Describes how a program begins. It has from this process all that is not said, but for files that close on exec.
class Spawn {
 public:
  Spawn() {
    posix_spawnattr_init(&attributes_);
    posix_spawn_file_actions_init(&files_);
  }
  ~Spawn() {
    posix_spawnattr_destroy(&attributes_);
    posix_spawn_file_actions_destroy(&files_);
  }
  Spawn(const Spawn&) = delete;
  Spawn& operator=(const Spawn&) = delete;

  /// A process group of its own, which a terminal does not signal.
  void own_group() {
    posix_spawnattr_setpgroup(&attributes_, 0);
    set(POSIX_SPAWN_SETPGROUP);
  }
  void block(const sigset_t& signals) {
    posix_spawnattr_setsigmask(&attributes_, &signals);
    set(POSIX_SPAWN_SETSIGMASK);
  }
  /// No signal is blocked or ignored, whatever this process does with them.
  void usual_signals() {
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    block(none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    set(POSIX_SPAWN_SETSIGDEF);
  }

  void input(const std::string& path = "/dev/null") { open(STDIN_FILENO, path, O_RDONLY); }
  /// Makes the file anew; `stream` is STDOUT_FILENO or STDERR_FILENO.
  void output(int stream, const std::string& path) { open(stream, path, O_WRONLY | O_CREAT | O_TRUNC); }
  void output(int stream, int same_as) { posix_spawn_file_actions_adddup2(&files_, same_as, stream); }

  /// Starts the first word, looked for on PATH where it has no slash, with the others. Returns 0, or why not as errno
  /// has it.
  int start(pid_t& child, const std::vector<std::string>& words, char* const* environment = environ) const {
    return posix_spawnp(&child, words.front().c_str(), &files_, &attributes_, argv_of(words).data(),
                        environment);
  }

 private:
  void set(int flag) {
    flags_ |= flag;
    posix_spawnattr_setflags(&attributes_, static_cast<short>(flags_));
  }
  void open(int stream, const std::string& path, int how) {
    posix_spawn_file_actions_addopen(&files_, stream, path.c_str(), how, 0644);
  }

  posix_spawnattr_t attributes_;
  posix_spawn_file_actions_t files_;
  int flags_ = 0;
};

}  // namespace trainyard::lib
