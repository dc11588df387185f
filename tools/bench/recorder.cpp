// What a recorder costs: the fused reduction against memory and against reductions one by one, whole runs
// that record this much or that against runs without a recorder, and runs with a rule that sleeps.
#include <ATen/Parallel.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/max.h>
#include <ATen/ops/min.h>
#include <ATen/ops/norm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/var.h>

#include <array>
#include <memory>
#include <numeric>
#include <random>
#include <semaphore>
#include <thread>

#include <trainyard/statistics.hpp>

#include "core/cli/engine_library.hpp"
#include "support/folder.hpp"
#include "tools/bench/contest.hpp"
#include "tools/bench/ours.hpp"
#include "tools/bench/process.hpp"

namespace trainyard::bench {
namespace {

#if defined(__x86_64__)
__attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3"), noinline))
#endif
float plain_sum(const float* x, std::int64_t count) {
  float sums[64] = {};
  for (std::int64_t i = 0; i + 64 <= count; i += 64)
    for (int j = 0; j < 64; ++j) sums[j] += x[i + j];
  float sum = 0.0F;
  for (const float each : sums) sum += each;
  return sum;
}

bool measure_reduction(std::int64_t bytes, int rounds, int repeats, bool in_cache) {
  const at::Tensor x = at::randn({bytes / 4});
  double sink = 0.0;
  const auto repeated = [&](auto&& once) {
    return [&, once] {
      for (int i = 0; i < repeats; ++i) sink += once();
    };
  };
  const std::vector<Contender> contenders = {
      {"plain vectorized sum", repeated([&] { return plain_sum(x.const_data_ptr<float>(), x.numel()); })},
      {"statistics", repeated([&] { return statistics(x).sum; })},
      {"statistics, portable", repeated([&] { return portable_statistics(x).sum; })},
      {"six at:: reductions", repeated([&] {
         return at::sum(x).item<float>() + at::sum(at::abs(x)).item<float>() + at::min(x).item<float>() +
                at::max(x).item<float>() + at::norm(x).item<float>() + at::var(x).item<float>();
       })}};
  const std::vector<Times> times = contest(contenders, rounds);
  const std::string title = std::to_string(bytes >> 20) + " MB of float32";
  print(title.c_str(), "us", 1e-6, repeats, contenders, times);
  const auto best = [&](std::size_t i) { return percentile(times[i].cpu, 0.0) / repeats; };
  const double rate = static_cast<double>(bytes) / best(1) / 1e9, share = best(0) / best(1);
  std::printf("  fused: %.1f GB/s%s, %.2f of the plain sum%s, %.1f times as fast as six (bar 4)\n\n", rate,
              in_cache ? " (bar 30)" : "", share, in_cache ? "" : " (bar 0.9)", best(3) / best(1));
  if (sink == 0.5) std::printf(" ");
  return (in_cache ? rate >= 30.0 : share >= 0.9) && best(3) >= 4.0 * best(1);
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Steps before anything is counted: caches, allocator, lazy set-up.
constexpr int warm_up = 30;

struct Spent {
  double wall, cpu;
};

/// A training on a thread of its own that goes on for so many steps at a time; it never ends in between.
class Paced final : train::LoopHost {
 public:
  explicit Paced(const std::vector<std::string>& sets)
      : file_(run_file(sets)), run_(file_.config, file_.registry) {
    run_.build_model();
    train::LoopParts parts;
    parts.host = this;
    parts.signal = &stop_;
    run_.build_loop(std::move(parts));
    thread_ = std::thread([this] {
      run_.loop().fit();
      run_.shutdown();
    });
    done_.acquire();
  }
  ~Paced() override { end(); }
  /// Seconds that so many steps take, what the loop waits for included; CPU time of the loop alone.
  Spent operator()(int steps) {
    until_ = until_ + steps;
    const double began = now(), cpu = cpu_seconds();
    go_.release();
    done_.acquire();
    return {now() - began, cpu_seconds() - cpu};
  }
  /// Seconds from the last step to the end of the run.
  double end() {
    const double began = now();
    if (!thread_.joinable()) return 0.0;
    stop_ = 1;
    go_.release();
    thread_.join();
    return now() - began;
  }

 private:
  bool log_due(std::int64_t number) override {
    if (number == until_) {
      done_.release();
      go_.acquire();
    }
    return false;
  }
  double cpu_seconds() {
    clockid_t clock{};
    timespec time{};
    pthread_getcpuclockid(thread_.native_handle(), &clock);
    clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }

  cli::RunFile file_;
  train::Run run_;
  std::atomic<int> stop_{0};
  std::atomic<std::int64_t> until_{warm_up};
  std::binary_semaphore go_{0}, done_{0};
  std::thread thread_;
};

/// What a run records, and which rules look at it.
struct Way {
  std::string name;
  int every;             ///< steps of a chunk: each has as many as any other at which something is due
  double bar;            ///< percent; 0: none
  std::string recorder;  ///< options; empty: none
  std::string rules = {};
};

std::string losses(int every) {
  return "save_interval=" + std::to_string(every);
}

/// Weights, biases and gradients, with what else is said of each.
std::string collections(int every, const std::string& each) {
  std::string text = "save_interval=1000000000, collections=[";
  for (const char* name : {"weights", "biases", "gradients"})
    text += std::string("{name=\"") + name + "\", save_interval=" + std::to_string(every) + each + "},";
  return text + "]";
}

const char* const statistics_of_each =
    ", reductions=[\"min\",\"max\",\"abs_mean\",\"l2\",\"nonfinite\",\"zeros\"]";

std::string reductions(int every) {
  return collections(every, statistics_of_each);
}
std::string histograms(int every) {
  return collections(every, std::string(statistics_of_each) + ", save_histogram=true");
}
std::string tensors(int every) {
  return collections(every, std::string(statistics_of_each) + ", save_raw_tensor=true, save_histogram=true");
}

/// Statistics of weights, gradients and losses, values of activations and of weights.
std::string five_rules(int every) {
  std::string text;
  for (const char* type :
       {"vanishing_gradient", "exploding_tensor", "dead_relu", "weight_update_ratio", "loss_not_decreasing"})
    text += std::string("{type=\"") + type + "\", every=\"" + std::to_string(every) + "ba\", repeat=true},";
  return text;
}

std::unique_ptr<Paced> paced(const std::string& layers, const Way& way, const std::string& folder) {
  std::vector<std::string> sets = {"model.layers=" + layers, "optimizer.type=sgd", "optimizer.lr=0.0001",
                                   "run.output_dir=" + folder};
  if (!way.recorder.empty()) sets.push_back("recorder={type=\"trial\", " + way.recorder + "}");
  if (!way.rules.empty()) sets.push_back("rules=[" + way.rules + "]");
  return std::make_unique<Paced>(sets);
}

/// Two runs, one without a recorder, which take turns; who begins is drawn.
std::array<Times, 2> race(const std::string& layers, const Way& way, int chunks, int chunk,
                          std::mt19937& random) {
  const test::Folder folder;
  const std::unique_ptr<Paced> runs[] = {paced(layers, {}, folder / "without"),
                                         paced(layers, way, folder / "with")};
  std::array<Times, 2> times;
  for (int i = 0; i < chunks; ++i) {
    const std::size_t first = random() % 2;
    for (const std::size_t turn : {first, 1 - first}) {
      const Spent spent = (*runs[turn])(chunk);
      times[turn].wall.push_back(spent.wall);
      times[turn].cpu.push_back(spent.cpu);
    }
  }
  return times;
}

double sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}
double percent(double with, double without) {
  return 100.0 * (with / without - 1.0);
}

struct Length {
  int pairs, steps;
};

/// Whole runs in pairs. Two runs of the same kind differ by some percent through where their tensors lie:
/// every pair has new ones, and the first line is a run without a recorder against another.
bool measure_runs(const char* title, const std::string& layers, const std::vector<Way>& ways, Length length) {
  std::mt19937 random(17);
  bool good = true;
  std::printf(
      "%s; %d pairs of whole runs of %d steps or more: by how much those that record are longer\n"
      "  %-38s %9s %10s %20s %10s %10s\n",
      title, length.pairs, length.steps, "", "plain, us", "wall", "lowest, highest", "p20 of it", "loop cpu");
  for (const Way& way : ways) {
    const int chunk = std::min(way.every < 20 ? 20 : way.every, length.steps);
    const int chunks = std::max(length.steps / chunk, std::min(4, length.steps / 20));
    std::vector<double> plain, wall, quiet, cpu;
    for (int pair = 0; pair < length.pairs; ++pair) {
      const auto [without, with] = race(layers, way, chunks, chunk, random);
      plain.push_back(sum(without.wall) / chunks / chunk);
      wall.push_back(percent(sum(with.wall), sum(without.wall)));
      quiet.push_back(percent(percentile(with.wall, 0.2), percentile(without.wall, 0.2)));
      cpu.push_back(percent(sum(with.cpu), sum(without.cpu)));
    }
    const double cost = percentile(wall, 0.5);
    std::printf("  %-38s %9.1f %+8.2f %% %+8.2f, %+7.2f %% %+8.2f %% %+8.2f %%", way.name.c_str(),
                1e6 * percentile(plain, 0.5), cost, percentile(wall, 0.0), percentile(wall, 1.0),
                percentile(quiet, 0.5), percentile(cpu, 0.5));
    if (way.bar > 0.0) std::printf("   (bar %.1f)", way.bar);
    std::printf("\n");
    std::fflush(stdout);
    good = good && (way.bar == 0.0 || cost <= way.bar);
  }
  std::printf("\n");
  return good;
}

/// The same where a step takes no time: a difference that the percents of a large run hide.
void measure_small(Length length) {
  std::mt19937 random(17);
  const std::vector<Way> ways = {
      {"no recorder, once more (noise)", 20, 0, ""},
      {"nothing is due", 20, 0, losses(1'000'000'000)},
      {"losses, every step", 20, 0, losses(1)},
  };
  std::printf("A step of an MLP 64-8-10, batch 64; %d pairs of runs of %d steps\n", length.pairs,
              length.steps);
  for (const Way& way : ways) {
    std::vector<double> difference;
    for (int pair = 0; pair < length.pairs; ++pair) {
      const auto [without, with] = race("[64,8,10]", way, length.steps / 20, 20, random);
      difference.push_back((percentile(with.wall, 0.2) - percentile(without.wall, 0.2)) / 20);
    }
    std::printf("  %-42s %+8.2f us a step (%+.2f to %+.2f)\n", way.name.c_str(),
                1e6 * percentile(difference, 0.5), 1e6 * percentile(difference, 0.0),
                1e6 * percentile(difference, 1.0));
  }
  std::printf("\n");
}

/// A run whose rule sleeps beside one whose rule does not, for as long as it sleeps; and how long the run's
/// end waits for it, which comes into the last two seconds of the sleep.
bool measure_sleep(double seconds) {
  const test::Folder folder;
  const auto run = [&](const char* name, double sleep) {
    return Paced({"run.output_dir=" + (folder / name),
                  "rules=[{type=\"asleep\", every=\"1ba\", at=" + std::to_string(warm_up + 200) +
                      ", seconds=" + std::to_string(sleep) + "}]"});
  };
  Paced awake = run("awake", 0.0), asleep = run("asleep", seconds);
  std::mt19937 random(17);
  Times times[2];
  awake(220), asleep(220);
  for (const double until = now() + 0.8 * seconds; now() < until;) {
    const bool first = random() % 2 == 1;
    for (const bool turn : {first, !first}) {
      const Spent spent = (turn ? asleep : awake)(200);
      times[turn].wall.push_back(spent.wall);
      times[turn].cpu.push_back(spent.cpu);
    }
  }
  const double end = asleep.end(), usual = awake.end();
  const double wall = percent(sum(times[1].wall), sum(times[0].wall));
  std::printf(
      "A rule that sleeps %.0f s, MLP 64-128-10: %zu steps beside it, against a run whose rule is awake\n"
      "  %+.2f %% by wall time, %+.2f %% by its 20th percentiles, %+.2f %% by CPU time of the loop (bar "
      "0.1)\n"
      "  longest 200 steps %.1f ms, awake %.1f; an end of the run in the sleep takes %.2f s, awake %.2f\n\n",
      seconds, 200 * times[1].wall.size(), wall,
      percent(percentile(times[1].wall, 0.2), percentile(times[0].wall, 0.2)),
      percent(sum(times[1].cpu), sum(times[0].cpu)), 1e3 * percentile(times[1].wall, 1.0),
      1e3 * percentile(times[0].wall, 1.0), end, usual);
  return wall <= 0.1;
}

/// Whole programs with checkpoints: one of them falls into the sleep.
void measure_sleep_in_a_run(double seconds, int pairs, int steps) {
  const auto time = [&](double sleep) {
    const test::Folder folder;
    const double began = now();
    run({cli::home() + "/bin/trainyard", "train", TRAINYARD_SOURCE_DIR "/tools/bench/loop.toml", "-q",
         "--plugins", TRAINYARD_BENCH_PLUGINS, "--set", "run.output_dir=" + (folder / "run"), "--set",
         "trainer.max_duration=" + std::to_string(steps) + "ba", "--set",
         "checkpoint={type=\"full\", interval=\"" + std::to_string(steps / 20) + "ba\"}", "--set",
         "rules=[{type=\"asleep\", every=\"1ba\", at=100, seconds=" + std::to_string(sleep) + "}]"});
    return now() - began;
  };
  std::vector<double> more, awake;
  for (int pair = 0; pair < pairs; ++pair) {
    const double asleep = time(seconds);
    awake.push_back(time(0.0));
    more.push_back(asleep - awake.back());
  }
  std::printf(
      "The same rule in a whole `trainyard train` of %d steps with 20 checkpoints, %d pairs\n"
      "  %+.2f s (%+.2f to %+.2f) on %.2f s: the first checkpoint in the sleep waits a second\n\n",
      steps, pairs, percentile(more, 0.5), percentile(more, 0.0), percentile(more, 1.0),
      percentile(awake, 0.5));
}

bool measure_steps(bool quick) {
  std::vector<Way> ways = {
      {"no recorder, once more (noise)", 20, 0, ""},
      {"nothing is due", 20, 0.1, losses(1'000'000'000)},
      {"losses, every step", 1, 0, losses(1)},
      {"reductions, every step", 1, 5.0, reductions(1)},
      {"reductions and histograms, every step", 1, 5.0, histograms(1)},
      {"reductions, every step, and five rules", 1, 0, reductions(1), five_rules(1)},
      {"reductions, every 10", 10, 0, reductions(10)},
      {"reductions, every 50", 50, 0, reductions(50)},
      {"reductions, every 50, and five rules", 50, 0, reductions(50), five_rules(50)},
      {"reductions, every 500", 500, 0.5, reductions(500)},
      {"reductions, every 500, and five rules", 500, 0.5, reductions(500), five_rules(500)},
      {"tensors and histograms, every 500", 500, 0, tensors(500)},
  };
  if (quick) ways = {ways[0], ways[5], ways.back()};
  bool good =
      measure_runs("A step of an MLP of 1 M parameters, batch 64; weights and gradients",
                   quick ? "[64,64,10]" : "[64,960,960,10]", ways, quick ? Length{1, 20} : Length{5, 200});
  measure_small(quick ? Length{1, 20} : Length{10, 4000});
  if (quick) return good;
  std::vector<Way> large;
  for (const std::size_t i : {0, 2, 3, 4, 5, 6, 8}) large.push_back(ways[i]);
  for (Way& way : large) way.bar *= 2.0;
  good = measure_runs("A step of an MLP of 20 M parameters, batch 64", "[64,4400,4400,10]", large, {3, 40}) &&
         good;
  return good;
}

}  // namespace
}  // namespace trainyard::bench

/// `bench recorder [reduction | steps | isolation] [--quick]`.
int main(int count, char** words) {
  using namespace trainyard::bench;
  std::string only;
  bool quick = false;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    word == "--quick" ? void(quick = true) : void(only = word);
  }
  const auto wanted = [&](const char* part) { return only.empty() || only == part; };
  at::set_num_threads(1);
  bool good = true;
  if (wanted("reduction")) {
    good = measure_reduction(4 << 20, quick ? 2 : 200, quick ? 2 : 10, true);
    good = measure_reduction(quick ? 8 << 20 : 400 << 20, quick ? 2 : 5, 1, false) && good;
  }
  if (wanted("steps")) good = measure_steps(quick) && good;
  if (wanted("isolation")) {
    good = measure_sleep(quick ? 0.3 : 10.0) && good;
    measure_sleep_in_a_run(quick ? 0.3 : 10.0, quick ? 1 : 3, quick ? 200 : 200'000);
  }
  return quick || good ? 0 : 1;  // no time is asserted there
}
