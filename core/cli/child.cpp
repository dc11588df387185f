#include "core/cli/child.hpp"

#include <fcntl.h>
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

#include "lib/spawn.hpp"

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
  lib::Spawn spawn;
  spawn.own_group();
  spawn.block(signals.before());
  if (!output.empty()) {
    spawn.input();
    spawn.output(STDOUT_FILENO, output);
    spawn.output(STDERR_FILENO, STDOUT_FILENO);
  }
  for (const int file : keeps) fcntl(file, F_SETFD, 0);
  pid_t child = 0;
  const int error = spawn.start(child, words);
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
