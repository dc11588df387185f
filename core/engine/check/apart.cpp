#include "core/engine/check/apart.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <new>
#include <nlohmann/json.hpp>

#include <trainyard/error.hpp>

namespace trainyard::check {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t longest_note = 4096;
constexpr int stops[] = {SIGINT, SIGTERM, SIGHUP};
volatile std::sig_atomic_t stopped = 0;  ///< the number of the signal that asked to stop, or 0
int report_to = -1;                      ///< in the process of a test: the pipe for its outcome

/// Memory that all processes of a check share.
char* note() {
  static char* const shared = [] {
    void* memory = mmap(nullptr, longest_note, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    return static_cast<char*>(memory);
  }();
  return shared;
}

void print_to(const std::string& file) {
  const int descriptor = open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (descriptor < 0) _exit(static_cast<int>(ExitCode::internal));
  dup2(descriptor, STDOUT_FILENO);
  dup2(descriptor, STDERR_FILENO);
  close(descriptor);
}

pid_t fork_from(pid_t parent) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0)
    throw Error(ExitCode::internal, std::string("no process is to be had: ") + std::strerror(errno));
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(static_cast<int>(ExitCode::internal));
  }
  return child;
}

Outcome outcome_of(const std::function<Outcome()>& test) {
  try {
    return test();
  } catch (const std::exception& error) {
    return failed(error.what() + done_last());
  } catch (...) {
    return failed("something that is no std::exception was thrown" + done_last());
  }
}

[[noreturn]] void run_test(int pipe, const std::string& said, const std::function<Outcome()>& test) {
  setpgid(0, 0);
  for (const int number : stops) std::signal(number, SIG_DFL);
  print_to(said);
  report_to = pipe;
  const Outcome outcome = outcome_of(test);
  const nlohmann::json json = {static_cast<int>(outcome.verdict), outcome.what, outcome.handed};
  const std::string text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t count = write(pipe, text.data() + done, text.size() - done);
    if (count <= 0) break;
    done += static_cast<std::size_t>(count);
  }
  _exit(0);
}

/// Reads until all writers are gone; returns false if that takes longer than `end`, or if asked to stop.
bool read_until(int pipe, Clock::time_point end, std::string& text) {
  std::array<char, 4096> buffer;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    pollfd ready{pipe, POLLIN, 0};
    if (left <= 0 || stopped != 0) return false;
    if (poll(&ready, 1, static_cast<int>(left)) <= 0) continue;
    const ssize_t count = read(pipe, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return true;
    text.append(buffer.data(), static_cast<std::size_t>(count));
  }
}

int wait_for(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  return status;
}

}  // namespace

Stoppable::Stoppable() {
  struct sigaction action {};
  action.sa_handler = [](int number) { stopped = number; };  // without SA_RESTART: calls that wait come back
  for (const int number : stops) sigaction(number, &action, nullptr);
}

Stoppable::~Stoppable() {
  for (const int number : stops) std::signal(number, SIG_DFL);
}

void doing(const std::string& what) {
  const std::size_t length = std::min(what.size(), longest_note - 1);
  std::memcpy(note(), what.data(), length);
  note()[length] = '\0';
}

std::string done_last() {
  return *note() == '\0' ? "" : std::string(", while ") + note();
}

Outcome apart(double seconds, const std::string& said, const std::function<Outcome()>& test) {
  doing("");
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Error(ExitCode::internal, "no pipe to a test is to be had");
  const auto end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  const pid_t child = fork_from(getpid());
  if (child == 0) {
    close(ends[0]);
    run_test(ends[1], said, test);
  }
  setpgid(child, child);  // either of the two comes first
  close(ends[1]);
  std::string text;
  const bool in_time = read_until(ends[0], end, text);
  close(ends[0]);
  kill(-child, SIGKILL);  // also ends what it left behind, or all of it if it is late
  const int status = wait_for(child);
  if (stopped != 0) throw Error(ExitCode::resumable, std::string("stopped by ") + strsignal(stopped));
  if (!in_time)
    return failed("did not end within " + std::to_string(std::lround(seconds)) + " seconds (--timeout)" +
                  done_last());
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_array() && json.size() == 3)
    return {static_cast<Verdict>(json[0].get<int>()), json[1].get<std::string>(), json[2].get<std::string>()};
  if (WIFSIGNALED(status)) return {Verdict::crash, end_text(status) + done_last(), {}};
  return failed("the plugin ended the process, with exit code " + std::to_string(WEXITSTATUS(status)) +
                done_last() + "; throw one of Trainyard's errors instead");
}

int forked(const std::string& said, const std::function<int()>& work) {
  const pid_t child = fork_from(getpid());
  if (child != 0) return wait_for(child);
  close(report_to);
  print_to(said);
  const int code = work();
  std::fflush(nullptr);
  _exit(code);
}

std::string end_text(int status) {
  if (!WIFSIGNALED(status)) return "ended with exit code " + std::to_string(WEXITSTATUS(status));
  return "died by signal " + std::to_string(WTERMSIG(status)) + " (" + strsignal(WTERMSIG(status)) + ")";
}

}  // namespace trainyard::check
