#define CATCH_CONFIG_EXTERNAL_INTERFACES  // listeners; ahead of every header
#include "contract/process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "core/cli/listening.hpp"
#include "core/engine/verbs/commands.hpp"
#include "core/runfile/load.hpp"
#include "core/runfile/print.hpp"
#include "core/runfile/resolve.hpp"
#include "faulty/place.hpp"
#include "support/folder.hpp"

/// Stands in for the C library's: tests/faulty/hook_killer.cpp asks to die inside a save, that is when the
/// second file of a checkpoint is to reach the disk.
extern "C" __attribute__((visibility("default"))) int fsync(int descriptor) {
  static std::atomic<bool> killing = false;
  static std::atomic<int> saved = 0;
  if (descriptor == faulty::die_in_save) killing = true;
  if (killing) {
    char path[4096] = {};
    const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
    if (readlink(link.c_str(), path, sizeof path - 1) > 0 &&
        std::string(path).find(".tmp-") != std::string::npos && ++saved == 2)
      raise(SIGKILL);
  }
  return static_cast<int>(syscall(SYS_fsync, descriptor));
}

namespace trainyard::contract {
namespace {

constexpr std::size_t longest_request = 1 << 16;
constexpr unsigned longest_run = 120;  ///< seconds; then SIGALRM ends it
int requests = -1;                     ///< socket to the process that forks

/// The verb and its number of ranks, in the first line of a request.
struct Asked {
  std::string verb;
  int ranks = 1;

  explicit Asked(const std::string& request) { std::istringstream(request) >> verb >> ranks; }
};

/// Exit code of what a request asks for: verb and number of ranks, run file and changes, a line each.
int answer(const std::string& request, int rank, const plugins::Registry& registry) {
  std::vector<std::string> lines;
  for (std::size_t at = 0, end = 0; at < request.size(); at = end + 1) {
    end = std::min(request.find('\n', at), request.size());
    lines.push_back(request.substr(at, end - at));
  }
  const Asked asked(lines[0]);
  const std::string file = lines[1];
  const std::string said = file + ".said" + (rank == 0 ? "" : std::to_string(rank));
  if (freopen(said.c_str(), "w", stderr) == nullptr) return 99;
  dup2(STDERR_FILENO, STDOUT_FILENO);
  lines.erase(lines.begin(), lines.begin() + 2);
  try {
    const std::string folder = file.substr(0, file.rfind('/'));
    config::Resolution resolution =
        config::resolve(config::load({file}, lines, {folder, asked.ranks}), registry);
    std::fputs(resolution.findings.text().c_str(), stderr);
    if (!resolution.config) return 2;
    if (asked.verb == "check") {
      train::check_command(*resolution.config, registry);
      return 0;
    }
    train::TrainOptions options;
    options.quiet = true;
    options.resolved_toml = config::toml_file(resolution.config->resolved);
    return train::train_command(*resolution.config, registry, options);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
}

/// As a launcher says it.
void place(int rank, int ranks, const control::Listening& store) {
  const auto set = [](const char* name, int value) { setenv(name, std::to_string(value).c_str(), 1); };
  set("RANK", rank);
  set("LOCAL_RANK", rank);
  set("WORLD_SIZE", ranks);
  set("LOCAL_WORLD_SIZE", ranks);
  set("MASTER_PORT", store.port());
  if (rank == 0) set("TRAINYARD_STORE_SOCKET", store.socket());
}

[[noreturn]] void serve(int socket) {
  const auto registry = plugins::Registry::scan({TRAINYARD_PLUGIN_DIR, TRAINYARD_BINARY_DIR "/tests/faulty",
                                                 TRAINYARD_BINARY_DIR "/tests/contract/throwers"});
  std::string request(longest_request, '\0');
  for (ssize_t size; (size = recv(socket, request.data(), request.size(), 0)) > 0;) {
    const Asked asked(request);
    const int ranks = asked.verb == "train" ? asked.ranks : 1;
    std::optional<control::Listening> store;
    if (ranks > 1) store.emplace();
    std::vector<pid_t> children;
    for (int rank = 0; rank < ranks; ++rank) {
      children.push_back(fork());
      if (children.back() != 0) continue;
      close(socket);
      if (store) place(rank, ranks, *store);
      alarm(longest_run);
      const int code = answer(request.substr(0, static_cast<std::size_t>(size)), rank, registry);
      std::fflush(nullptr);
      _exit(code);
    }
    store.reset();
    int status = 0;
    for (const pid_t child : children) {
      int own = -1;
      waitpid(child, &own, 0);
      if (status == 0) status = own;
    }
    if (send(socket, &status, sizeof status, MSG_NOSIGNAL) < 0) break;
  }
  _exit(0);
}

/// Ahead of the first test, as long as this process has one thread.
struct Server : Catch::TestEventListenerBase {
  using TestEventListenerBase::TestEventListenerBase;
  void testRunStarting(const Catch::TestRunInfo&) override {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
      throw std::runtime_error("no sockets");
    server_ = fork();
    if (server_ == 0) {
      close(ends[0]);
      serve(ends[1]);
    }
    close(ends[1]);
    requests = ends[0];
  }
  void testRunEnded(const Catch::TestRunStats&) override {
    close(requests);
    waitpid(server_, nullptr, 0);
  }

 private:
  pid_t server_ = -1;
};
CATCH_REGISTER_LISTENER(Server)

}  // namespace

int Apart::ask(const std::string& verb, std::vector<std::string> sets, int ranks) const {
  sets.push_back("run.output_dir=" + run());
  std::string request = verb + " " + std::to_string(ranks) + "\n" + file_;
  for (const std::string& set : sets) request += "\n" + set;
  int status = -1;
  if (request.size() > longest_request || send(requests, request.data(), request.size(), MSG_NOSIGNAL) < 0 ||
      recv(requests, &status, sizeof status, 0) != sizeof status)
    FAIL("the process that trains is gone");
  return status;
}

std::string Apart::said() const {
  return test::read_file(file_ + ".said");
}

Outcome train_apart(const std::string& text, const std::vector<std::string>& sets) {
  const Apart run(text);
  const int status = run.train(sets);
  Outcome outcome = outcome_of(run.run());
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == outcome.exit_code));
  return outcome;
}

}  // namespace trainyard::contract
