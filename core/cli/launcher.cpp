#include "core/cli/launcher.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <thread>
#include <utility>

#include <trainyard/error.hpp>

#include "core/cli/child.hpp"
#include "core/cli/listening.hpp"

namespace trainyard::control {
namespace {

using std::chrono::milliseconds;

// Once a rank has failed, the others end by themselves in a few seconds and say why. Ranks that wait for it
// in a rendezvous, the first or a later one, end when they are told.
constexpr auto told_after = std::chrono::seconds(4), killed_after = std::chrono::seconds(20);

void set(const char* name, int value) {
  setenv(name, std::to_string(value).c_str(), 1);
}

/// The pipe into which ranks write their number once the run can go on if they are killed.
struct Pipe {
  int reads = -1, writes = -1;

  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
      throw Error(ExitCode::distributed, "no pipe to the ranks is to be had");
    reads = ends[0];
    writes = ends[1];
  }
  ~Pipe() {
    close(reads);
    close(writes);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
};

struct Rank {
  int number = 0;
  End end;
  bool running = true;
  bool replaced = false;  ///< it is replaced if it is killed
  bool joining = false;   ///< a replacement that has not met the others yet
};

/// The ranks of a run as child processes.
class Ranks {
 public:
  Ranks(const std::vector<std::string>& words, int count, const HeldSignals& signals)
      : words_(words), signals_(signals) {
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("TORCH_CPP_LOG_LEVEL", "ERROR", 0);  // the host reports c10d's warnings itself, without stacks
    set("MASTER_PORT", store_.port());
    set("WORLD_SIZE", count);
    set("LOCAL_WORLD_SIZE", count);
    set("TRAINYARD_LAUNCHER_PIPE", pipe_.writes);
    const auto cores = static_cast<int>(std::thread::hardware_concurrency());
    if (std::getenv("OMP_NUM_THREADS") == nullptr) set("OMP_NUM_THREADS", std::max(1, cores / count));
    for (int rank = 0; rank < count; ++rank) all_.push_back({.number = rank, .end = {begin(rank)}});
  }

  bool any_running() const { return std::ranges::any_of(all_, &Rank::running); }
  bool all_running() const { return std::ranges::all_of(all_, &Rank::running); }

  /// Ends replacements that wait for the rendezvous, which cannot happen once one of the others has ended.
  void end_joining() {
    for (const Rank& rank : all_)
      if (rank.running && rank.joining) kill(rank.end.child, SIGKILL);
  }

  void tell(int signal) {
    told_ = true;
    for (const Rank& rank : all_)
      if (rank.running) kill(rank.end.child, signal);
  }

  /// Collects ranks that have ended, replaces killed ones if possible, and returns whether one failed.
  bool reap() {
    for (std::int32_t number = 0; read(pipe_.reads, &number, sizeof number) == sizeof number;) {
      Rank& rank = all_.at(static_cast<std::size_t>(number));
      rank.replaced = true;
      rank.joining = false;
    }
    bool failed = false;
    for (Rank& rank : all_) {
      if (!rank.running || waitpid(rank.end.child, &rank.end.status, WNOHANG) != rank.end.child) continue;
      rank.running = false;
      const int code = rank.end.code();
      const bool in_order =
          code == static_cast<int>(ExitCode::done) || code == static_cast<int>(ExitCode::resumable);
      if (!in_order && replace(rank)) continue;
      // Nobody serves the store any more; a rank that connects again would wait here for an answer.
      if (rank.number == 0) close(store_.release());
      if (in_order) continue;
      failed = true;
      if (rank.end.by_signal() && !failed_)
        std::fprintf(stderr, "trainyard: rank %d %s; the others end\n", rank.number, rank.end.text().c_str());
    }
    failed_ = failed_ || failed;
    return failed;
  }

  /// Returns the exit code of the first rank that failed by itself, as the others ended because of it.
  int code() const {
    int code = 0;
    for (const Rank& rank : all_) {
      const int own = rank.end.by_signal() ? static_cast<int>(ExitCode::distributed) : rank.end.code();
      if (code == 0 || code == static_cast<int>(ExitCode::distributed)) code = own == 0 ? code : own;
    }
    return code;
  }

 private:
  pid_t begin(int rank) {
    set("RANK", rank);
    set("LOCAL_RANK", rank);
    std::vector<int> keeps{pipe_.writes};
    if (rank == 0) {
      set("TRAINYARD_STORE_SOCKET", store_.socket());
      keeps.push_back(store_.socket());
    } else {
      unsetenv("TRAINYARD_STORE_SOCKET");
    }
    return start(words_, signals_, keeps);
  }

  /// Replaces a rank that SIGKILL ended: its sender wants the process gone, not the run. A crash of the
  /// program itself would only repeat.
  bool replace(Rank& rank) {
    if (failed_ || told_ || !rank.replaced || !rank.end.by_signal() || rank.end.signal() != SIGKILL)
      return false;
    for (const Rank& other : all_)
      if (other.number != rank.number && !other.running) return false;  // a rank ended in order: none waits
    set("TRAINYARD_REPLACEMENT", ++replacements_);
    std::fprintf(stderr, "trainyard: rank %d %s; a new process takes its place\n", rank.number,
                 rank.end.text().c_str());
    rank.end = {begin(rank.number)};
    return rank.running = rank.joining = true;
  }

  const std::vector<std::string>& words_;
  const HeldSignals& signals_;
  Listening store_;
  const Pipe pipe_;
  std::vector<Rank> all_;
  int replacements_ = 0;
  bool failed_ = false, told_ = false;
};

}  // namespace

int launch(const std::vector<std::string>& words, int ranks) {
  const HeldSignals signals;
  Ranks all(words, ranks, signals);
  using Clock = std::chrono::steady_clock;
  std::optional<Clock::time_point> ended, failed;  // when the first rank ended, or failed
  bool told = false;
  while (all.any_running()) {
    const int number = signals.next(milliseconds(ended ? 200 : 60'000));
    if (number != 0 && number != SIGCHLD) all.tell(number);
    if (all.reap() && !failed) failed = Clock::now();
    if (!all.all_running() && !ended) ended = Clock::now();
    if (ended && Clock::now() >= *ended + told_after) all.end_joining();
    if (!failed || Clock::now() < *failed + told_after) continue;
    if (!std::exchange(told, true)) all.tell(SIGTERM);
    if (Clock::now() > *failed + killed_after) all.tell(SIGKILL);
  }
  return all.code();
}

}  // namespace trainyard::control
