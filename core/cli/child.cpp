#include "core/cli/child.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <iterator>

#include <trainyard/error.hpp>

#include "lib/words.hpp"

namespace trainyard::control {
namespace {

constexpr const char* parent_variable = "TRAINYARD_SUPERVISOR";
constexpr int handed_on[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGQUIT};

}  // namespace

HeldSignals::HeldSignals() {
  sigemptyset(&held_);
  sigaddset(&held_, SIGCHLD);
  for (const int number : handed_on) sigaddset(&held_, number);
  sigprocmask(SIG_BLOCK, &held_, &before_);
}

int HeldSignals::next(std::optional<std::chrono::milliseconds> limit) const {
  const auto milliseconds = limit.value_or(std::chrono::milliseconds(0)).count();
  const timespec time{milliseconds / 1000, milliseconds % 1000 * 1'000'000};
  for (;;) {
    const int number = limit ? sigtimedwait(&held_, nullptr, &time) : sigwaitinfo(&held_, nullptr);
    if (number > 0) return number;
    if (errno == EAGAIN) return 0;
  }
}

pid_t start(const std::vector<std::string>& words, const HeldSignals& signals, const std::vector<int>& keeps,
            const std::string& output) {
  setenv(parent_variable, std::to_string(getpid()).c_str(), 1);
  const std::vector<char*> arguments = lib::argv_of(words);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setsigmask(&attributes, &signals.before());
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawn_file_actions_t streams;
  posix_spawn_file_actions_init(&streams);
  if (!output.empty()) {
    posix_spawn_file_actions_addopen(&streams, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&streams, STDOUT_FILENO, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                     0644);
    posix_spawn_file_actions_adddup2(&streams, STDOUT_FILENO, STDERR_FILENO);
  }
  for (const int file : keeps) fcntl(file, F_SETFD, 0);
  pid_t child = 0;
  const int error = posix_spawn(&child, arguments[0], &streams, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&streams);
  for (const int file : keeps) fcntl(file, F_SETFD, FD_CLOEXEC);
  if (error != 0)
    throw Error(ExitCode::internal, "cannot start " + words.front() + ": " + std::strerror(error));
  return child;
}

bool can_fork() {
  const std::filesystem::directory_iterator threads("/proc/self/task");
  return std::distance(begin(threads), end(threads)) == 1;
}

pid_t start(const std::function<int()>& work, const HeldSignals& signals, const std::string& output) {
  std::cout.flush();
  std::fflush(nullptr);  // else the child writes it, too
  const pid_t parent = getpid(), child = fork();
  if (child < 0)
    throw Error(ExitCode::internal, std::string("cannot start a process: ") + std::strerror(errno));
  if (child > 0) return child;
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(128 + SIGTERM);
  close_range(STDERR_FILENO + 1, ~0U, 0);
  if (std::freopen("/dev/null", "r", stdin) == nullptr ||
      std::freopen(output.c_str(), "w", stdout) == nullptr)
    _exit(static_cast<int>(ExitCode::internal));
  dup2(STDOUT_FILENO, STDERR_FILENO);
  sigprocmask(SIG_SETMASK, &signals.before(), nullptr);
  const int code = work();
  std::cout.flush();
  std::fflush(nullptr);
  _exit(code);
}

void follow_parent() {
  const char* parent = std::getenv(parent_variable);
  if (parent == nullptr) return;
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (std::to_string(getppid()) != parent) raise(SIGTERM);  // the parent died before prctl
  unsetenv(parent_variable);
}

bool End::crashed() const {
  if (!by_signal()) return false;
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGKILL, SIGSYS, SIGTRAP})
    if (signal() == number) return true;
  return false;
}

std::string End::text() const {
  return by_signal() ? "died by signal " + std::to_string(signal()) + " (" + strsignal(signal()) + ")"
                     : "ended with exit code " + std::to_string(code());
}

}  // namespace trainyard::control
