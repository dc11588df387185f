#include "lib/apart.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>

#include "lib/descriptor.hpp"

namespace trainyard::lib {
namespace {

constexpr int whole = 97;  // the exit code of a copy that returned: none that another end of it would have

bool write_all(int to, const std::string& bytes) {
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t written = ::write(to, bytes.data() + done, bytes.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    done += static_cast<std::size_t>(written);
  }
  return true;
}

[[noreturn]] void be_the_copy(const std::function<std::string()>& compute, int to, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // nobody would wait for it
  if (::getppid() != parent) ::_exit(1);
  for (const int each : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGTERM, SIGINT})
    std::signal(each, SIG_DFL);  // the host reports its own
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  const int nowhere = ::open("/dev/null", O_WRONLY);
  ::dup2(nowhere, STDOUT_FILENO);
  ::dup2(nowhere, STDERR_FILENO);
  // The copy holds none of the files that are open: the pipe of another one would not come to its end.
  ::close_range(STDERR_FILENO + 1, static_cast<unsigned>(to) - 1, 0);
  ::close_range(static_cast<unsigned>(to) + 1, ~0U, 0);
  try {
    ::_exit(write_all(to, compute()) ? whole : 1);
  } catch (...) {
    ::_exit(1);
  }
}

/// Reads until the end. Returns why that was not waited for, or `returned`.
Apart::End read_all(int from, double seconds, const std::function<bool()>& stop, std::string& bytes) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  for (;;) {
    if (stop && stop()) return Apart::End::stopped;
    const double left = seconds - std::chrono::duration<double>(Clock::now() - begin).count();
    if (left <= 0.0) return Apart::End::late;
    pollfd waiting{from, POLLIN, 0};
    const int ready = ::poll(&waiting, 1, static_cast<int>(std::min(left, stop ? 0.01 : 1e6) * 1000.0) + 1);
    if (ready <= 0) continue;
    char buffer[1 << 16];
    const ssize_t count = ::read(from, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return Apart::End::returned;
    bytes.append(buffer, static_cast<std::size_t>(count));
  }
}

}  // namespace

Apart computed_apart(const std::function<std::string()>& compute, double seconds,
                     const std::function<bool()>& stop) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {.number = errno};
  const Descriptor from(ends[0]);
  Descriptor to(ends[1]);
  const pid_t parent = ::getpid(), copy = ::fork();
  if (copy < 0) return {.number = errno};
  if (copy == 0) be_the_copy(compute, to.get(), parent);
  to = {};
  Apart made;
  made.end = read_all(from.get(), seconds, stop, made.bytes);
  if (made.end != Apart::End::returned) ::kill(copy, SIGKILL);
  int status = 0;
  while (::waitpid(copy, &status, 0) < 0 && errno == EINTR) {}
  if (stop && stop()) made.end = Apart::End::stopped;  // a signal that asked for it ends the copy, too
  if (made.end != Apart::End::returned) return {.end = made.end};
  if (WIFSIGNALED(status)) return {.end = Apart::End::died, .number = WTERMSIG(status)};
  if (WEXITSTATUS(status) != whole) return {.end = Apart::End::failed};
  return made;
}

}  // namespace trainyard::lib
