#include "core/cli/launcher.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include <trainyard/error.hpp>

#include "core/cli/child.hpp"
#include "core/cli/listening.hpp"

namespace trainyard::control {
namespace {

using std::chrono::milliseconds;

constexpr auto patience = std::chrono::seconds(20);  ///< for ranks to end once another has failed

void set(const char* name, int value) {
  setenv(name, std::to_string(value).c_str(), 1);
}

struct Rank {
  int number = 0;
  End end;
  bool running = true;
};

bool any_running(const std::vector<Rank>& ranks) {
  return std::ranges::any_of(ranks, &Rank::running);
}

void tell(const std::vector<Rank>& ranks, int signal) {
  for (const Rank& rank : ranks)
    if (rank.running) kill(rank.end.child, signal);
}

/// Those that have ended since; whether one of them failed.
bool reap(std::vector<Rank>& ranks, bool told) {
  bool failed = false;
  for (Rank& rank : ranks) {
    if (!rank.running || waitpid(rank.end.child, &rank.end.status, WNOHANG) != rank.end.child) continue;
    rank.running = false;
    const int code = rank.end.code();
    if (code == static_cast<int>(ExitCode::done) || code == static_cast<int>(ExitCode::resumable)) continue;
    failed = true;
    if (rank.end.by_signal() && !told)
      std::fprintf(stderr, "trainyard: rank %d %s; the others end\n", rank.number, rank.end.text().c_str());
  }
  return failed;
}

/// Of the first that failed by itself: the others ended because of it.
int code_of(const std::vector<Rank>& ranks) {
  int code = 0;
  for (const Rank& rank : ranks) {
    const int own = rank.end.by_signal() ? static_cast<int>(ExitCode::distributed) : rank.end.code();
    if (code == 0 || code == static_cast<int>(ExitCode::distributed)) code = own == 0 ? code : own;
  }
  return code;
}

}  // namespace

int launch(const std::vector<std::string>& words, int ranks) {
  const HeldSignals signals;
  const Listening store;
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  set("MASTER_PORT", store.port());
  set("WORLD_SIZE", ranks);
  set("LOCAL_WORLD_SIZE", ranks);
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  if (std::getenv("OMP_NUM_THREADS") == nullptr) set("OMP_NUM_THREADS", std::max(1, cores / ranks));
  std::vector<Rank> all;
  for (int rank = 0; rank < ranks; ++rank) {
    set("RANK", rank);
    set("LOCAL_RANK", rank);
    if (rank == 0)
      set("TRAINYARD_STORE_SOCKET", store.socket());
    else
      unsetenv("TRAINYARD_STORE_SOCKET");
    all.push_back({.number = rank,
                   .end = {start(words, signals, rank == 0 ? std::optional(store.socket()) : std::nullopt)}});
  }
  bool failed = false;
  auto until = std::chrono::steady_clock::time_point::max();
  while (any_running(all)) {
    const int number = signals.next(milliseconds(failed ? 200 : 60'000));
    if (number != 0 && number != SIGCHLD) tell(all, number);
    if (reap(all, failed) && !failed) {
      failed = true;
      until = std::chrono::steady_clock::now() + patience;
    }
    if (std::chrono::steady_clock::now() < until) continue;
    tell(all, SIGKILL);
  }
  return code_of(all);
}

}  // namespace trainyard::control
