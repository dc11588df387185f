// What swaps cost a run: the pause at the commit, the steps during a preparation, memory after many of them.
#include <ATen/Parallel.h>
#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <optional>
#include <thread>

#include "core/engine/events/fault_report.hpp"
#include "support/live.hpp"
#include "tools/bench/contest.hpp"
#include "tools/bench/process.hpp"

namespace trainyard::bench {
namespace {

const plugins::Registry& registry() {
  static const auto made = plugins::Registry::scan({TRAINYARD_PLUGIN_DIR});
  return made;
}

/// An MLP of four tensors with AdamW: twice its parameters as state.
std::string run_text(const std::string& layers, int features, int classes) {
  return "schema = 1\n[run]\nname = \"bench-swap\"\nseed = 17\nthreads = { intra_op = 1, inter_op = 1 }\n"
         "[model]\ntype = \"mlp\"\nlayers = " +
         layers +
         "\n[loss]\ntype = \"cross_entropy\"\n[data]\ntype = \"synthetic\"\nkind = \"classification\"\n"
         "shape = [" +
         std::to_string(features) + "]\nclasses = " + std::to_string(classes) +
         "\ntrain = { size = 256, batch_size = 4 }\n[optimizer]\ntype = \"adamw\"\nlr = 0.001\n"
         "[trainer]\nmax_duration = \"100000000ba\"\n";
}
const std::string small = run_text("[16, 24, 4]", 16, 4);              // 508 parameters: 4 KB of state
const std::string large = run_text("[1024, 4096, 1024]", 1024, 1024);  // 8.4 million: 64 MB
const std::string medium = run_text("[64, 128, 10]", 64, 10);

/// A run whose optimizer a client swaps with itself as fast as the answers come, as `trainyard ctl` does.
class Swapped final : test::LiveRun {
 public:
  /// `watch`: nothing is the host's default.
  Swapped(const std::string& text, std::optional<Duration> watch)
      : LiveRun(text, registry(), {}, {}, {.signal = &stop_}), watch_(watch), faults_(folder_.path(), "") {}

  /// `each(i)` is called after swap i, on the client's thread.
  void swap(
      int count, const std::function<void(int)>& each = [](int) {}) {
    std::exception_ptr failed;
    std::thread client([&] {
      try {
        control::Client client(directory());
        control::Request request{.verb = control::Verb::swap};
        request.slot = "optimizer";
        request.type = "adamw";
        request.watch = watch_;
        for (int i = 0; i < count; ++i) {
          client.ask(request, std::chrono::minutes(1));
          each(i);
        }
      } catch (...) {
        failed = std::current_exception();
      }
      stop_ = 1;
    });
    fit();
    client.join();
    if (failed) std::rethrow_exception(failed);
  }

  using LiveRun::pauses;
  std::int64_t steps() { return run().clock().step; }

  /// Of each swap: by how much the step before its commit and those of its watch take longer than as many
  /// median steps. The pause is in it, and what the watch costs afterwards.
  std::vector<double> whole() const {
    constexpr std::size_t window = 7;  // the default watch is five steps
    std::vector<double> steps, whole;
    for (std::size_t i = 1; i < begun_.size(); ++i) steps.push_back(begun_[i] - begun_[i - 1]);
    const double usual = percentile(steps, 0.5);
    for (const std::size_t at : committed_)
      if (at > 0 && at - 1 + window < begun_.size())
        whole.push_back(begun_[at - 1 + window] - begun_[at - 1] - window * usual);
    return whole;
  }

 private:
  train::Run& run() { return **this; }
  bool log_due(std::int64_t) override {
    begun_.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count());
    return false;
  }
  void exchanged() override {
    LiveRun::exchanged();
    committed_.push_back(begun_.size());
    std::vector<report::ReportedPlugin> all;
    for (train::ActivePlugin& each : run().plugins())
      all.push_back({each.slot().slot, each.slot().type, each.slot().kind, each.file().digest});
    faults_.set_plugins(std::move(all));
  }

  std::optional<Duration> watch_;
  std::vector<double> begun_;           ///< when each step began
  std::vector<std::size_t> committed_;  ///< how many had begun at each commit
  std::atomic<int> stop_{0};
  Folder folder_;
  report::FaultReport faults_;
};

double pause(const char* what, const std::string& text, int swaps,
             std::optional<Duration> watch = std::nullopt) {
  Swapped swapped(text, watch);
  swapped.swap(swaps);
  const double p50 = percentile(swapped.pauses(), 0.5);
  std::printf("  %-44s %9.1f %9.1f %9.1f %9.1f   %zu swaps in %lld steps\n", what, 1e6 * p50,
              1e6 * percentile(swapped.pauses(), 0.9), 1e6 * percentile(swapped.pauses(), 1.0),
              1e6 * percentile(swapped.whole(), 0.5), swapped.pauses().size(),
              static_cast<long long>(swapped.steps()));
  std::fflush(stdout);
  return p50;
}

/// As a client asks by default: the swap is watched for five steps, so that it can be taken back.
bool measure_pauses(int swaps) {
  const Duration off = *Duration::parse("0ba");
  const int few = std::max(3, swaps / 10);
  std::printf(
      "Pause at the commit, AdamW to itself, us; whole: with what the steps of the watch take longer\n"
      "  %-44s %9s %9s %9s %9s\n",
      "", "p50", "p90", "max", "whole p50");
  const double little = pause("state of 4 KB (bar p50 20)", small, swaps);
  const double much = pause("state of 64 MB", large, few);
  std::printf("  64 MB takes %.2f of the pause of 4 KB (bar 5)\n", much / little);
  pause("state of 4 KB, watch = \"0ba\"", small, swaps, off);
  pause("state of 64 MB, watch = \"0ba\"", large, few, off);
  std::printf("\n");
  return little <= 20e-6 && much <= 5 * little;
}

/// Ends a training after a step.
struct StopAt final : train::LoopHost {
  explicit StopAt(std::atomic<int>& signal) : signal_(signal) {}
  bool log_due(std::int64_t number) override {
    if (number == step) signal_ = 1;
    return false;
  }
  std::int64_t step = 0;

 private:
  std::atomic<int>& signal_;
};

/// Steps with swaps being prepared all the time on another thread, none committed, and the same without.
bool measure_steps(int rounds, int steps) {
  std::atomic<int> stop{0};
  std::atomic<bool> busy{false}, over{false};
  StopAt host(stop);
  train::LoopParts parts;
  parts.host = &host;
  parts.signal = &stop;
  train::Run run(test::config_of(medium, {}, registry()), registry());
  run.build_model();
  run.build_loop(std::move(parts));
  std::int64_t prepared = 0;
  std::thread other([&] {
    while (!over) {
      if (!busy) {
        std::this_thread::sleep_for(std::chrono::microseconds(200));
        continue;
      }
      train::Swaps(run).prepare({{.slot = "optimizer", .type = "adamw", .options = {}}});
      ++prepared;
    }
  });
  const auto chunk = [&](bool preparing) {
    busy = preparing;
    stop = 0;
    host.step = run.clock().step + steps;
    run.loop().fit();
  };
  const std::vector<Contender> contenders = {{"idle control", [&] { chunk(false); }},
                                             {"idle control, once more (noise)", [&] { chunk(false); }},
                                             {"while swaps are prepared (bar 1.05)", [&] { chunk(true); }}};
  const std::vector<Times> times = contest(contenders, rounds);
  over = true;
  other.join();
  print("Steps, MLP 64-128-10, batch 4", "us a step", 1e-6, steps, contenders, times);
  const auto longer = [&](std::size_t i) {
    return percentile(times[i].wall, 0.5) / percentile(times[0].wall, 0.5);
  };
  std::printf("  medians of wall time: %.3f while %lld swaps were prepared (bar 1.05), noise %.3f\n\n",
              longer(2), static_cast<long long>(prepared), longer(1));
  return longer(2) <= 1.05;
}

std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

std::int64_t entries(const char* folder) {
  std::int64_t count = 0;
  DIR* const open = opendir(folder);
  while (readdir(open) != nullptr) ++count;
  closedir(open);
  return count;
}

bool measure_memory(int cycles) {
  struct Use {
    std::int64_t memory, files, threads;
  };
  const auto now = [] { return Use{resident_bytes(), entries("/proc/self/fd"), entries("/proc/self/task")}; };
  constexpr int first = 200;
  Use begin{}, end{};
  Swapped swapped(small, std::nullopt);
  const auto began = std::chrono::steady_clock::now();
  swapped.swap(cycles, [&](int i) {
    if (i == first - 1) begin = now();
    if (i == cycles - 1) end = now();
  });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  const std::int64_t grown = end.memory - begin.memory;
  std::printf(
      "%d swap cycles, %.2f ms each\n  after the first %d: %lld KiB more resident (bar 1024), %lld more file "
      "handles, %lld more threads (bars 0)\n",
      cycles, 1e3 * seconds / cycles, first, static_cast<long long>(grown >> 10),
      static_cast<long long>(end.files - begin.files), static_cast<long long>(end.threads - begin.threads));
  return grown <= 1 << 20 && end.files <= begin.files && end.threads <= begin.threads;
}

}  // namespace
}  // namespace trainyard::bench

int main(int argc, char** argv) {
  const bool quick = argc > 1 && std::strcmp(argv[1], "--quick") == 0;
  at::set_num_threads(1);
  using namespace trainyard::bench;
  const bool pauses = measure_pauses(quick ? 20 : 200);
  const bool steps = measure_steps(quick ? 3 : 100, quick ? 50 : 400);
  const bool memory = measure_memory(quick ? 300 : 10'000);
  if (quick) return memory ? 0 : 1;  // no time is asserted there
  return pauses && steps && memory ? 0 : 1;
}
