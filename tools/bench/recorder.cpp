// What a recorder costs: the fused reduction against memory and against reductions one by one, and the steps
// of trainings that record this much or that.
#include <ATen/Parallel.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/max.h>
#include <ATen/ops/min.h>
#include <ATen/ops/norm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/var.h>

#include <memory>
#include <numeric>
#include <random>
#include <semaphore>
#include <thread>

#include <trainyard/statistics.hpp>

#include "support/temporary.hpp"
#include "tools/bench/contest.hpp"
#include "tools/bench/ours.hpp"

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

/// Steps before anything is counted: caches, allocator, lazy set-up; of a chunk; and at its beginning, when
/// the caches hold what others left there.
constexpr int warm_up = 30, chunk = 20, cold = 5;

/// A training on a thread of its own that goes on for so many steps at a time; it never ends in between.
class Paced {
 public:
  explicit Paced(const std::vector<std::string>& sets)
      : file_(run_file(sets)), run_(file_.config, file_.registry) {
    run_.build_model();
    train::LoopParts parts;
    parts.signal = &stop_;
    parts.log_due = [this](std::int64_t number) {
      begin_step(number);
      return false;
    };
    run_.build_loop(std::move(parts));
    thread_ = std::thread([this] { run_.loop().fit(); });
    done_.acquire();
  }
  ~Paced() {
    stop_ = 1;
    go_.release();
    thread_.join();
  }
  void operator()(int steps) {
    until_ = until_ + steps;
    go_.release();
    done_.acquire();
  }
  /// Length of each step: what the loop waits for counts, too.
  std::vector<double> steps;

 private:
  static double seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  /// `number`: of the step that begins, from 1.
  void begin_step(std::int64_t number) {
    if (number > 1) steps.push_back(seconds() - began_);
    if (number == until_) {
      done_.release();
      go_.acquire();
    }
    began_ = seconds();
  }

  cli::RunFile file_;
  train::Run run_;
  std::atomic<int> stop_{0};
  std::atomic<std::int64_t> until_{warm_up};
  double began_ = 0.0;
  std::binary_semaphore go_{0}, done_{0};
  std::thread thread_;
};

/// Steps at which something is due: every so many or, with 1, all of every other twenty.
struct Rhythm {
  int every = 1;
  bool due(std::size_t step) const {
    return every == 1 ? step / 20 % 2 == 1 : step % static_cast<std::size_t>(every) == 0;
  }
  std::string config(int steps) const {
    if (every > 1) return "save_interval=" + std::to_string(every);
    std::string list;
    for (int i = 0; i < steps; ++i)
      if (due(static_cast<std::size_t>(i))) list += (list.empty() ? "" : ",") + std::to_string(i);
    return "save_interval=1000000000, save_steps=[" + list + "]";
  }
};

enum class What { losses, reductions, tensors };

struct Way {
  std::string name;
  What what;
  Rhythm rhythm;
  double bar;  ///< percent; 0: none
};

/// The recorder's options, in one line.
std::string options(const Way& way, int steps) {
  const std::string rhythm = way.rhythm.config(steps);
  if (way.what == What::losses) return rhythm;
  std::string text = "save_interval=1000000000, collections=[";
  for (const char* name : {"weights", "biases", "gradients"})
    text += std::string("{name=\"") + name + "\", " + rhythm +
            (way.what == What::tensors
                 ? ""
                 : ", reductions=[\"min\",\"max\",\"abs_mean\",\"l2\",\"nonfinite\",\"zeros\"]") +
            "},";
  return text + "]";
}

std::unique_ptr<Paced> paced(const std::string& layers, const std::string& recorder,
                             const std::string& folder) {
  std::vector<std::string> sets = {"model.layers=" + layers, "optimizer.type=sgd", "optimizer.lr=0.0001",
                                   "run.output_dir=" + folder};
  if (!recorder.empty()) sets.push_back("recorder={type=\"trial\", " + recorder + "}");
  return std::make_unique<Paced>(sets);
}

/// All go on in turn, in short chunks, until each has made so many steps.
void take_turns(const std::vector<std::unique_ptr<Paced>>& runs, int steps) {
  std::mt19937 random(17);
  std::vector<std::size_t> turns(runs.size());
  std::iota(turns.begin(), turns.end(), std::size_t{0});
  for (int done = 0; done < steps; done += chunk) {
    std::shuffle(turns.begin(), turns.end(), random);
    for (const std::size_t i : turns) (*runs[i])(chunk);
  }
}

/// The steps that count and at which something is due, or not; all of them for null.
double median_step(const std::vector<double>& steps, const Rhythm* rhythm = nullptr, bool due = true) {
  std::vector<double> those;
  for (std::size_t i = warm_up; i < steps.size(); ++i)
    if ((i - warm_up) % chunk >= cold && (rhythm == nullptr || rhythm->due(i) == due))
      those.push_back(steps[i]);
  return percentile(those, 0.5);
}

/// Steps that are due against the others of the same run: two runs of the same kind differ by some percent
/// through where their tensors lie. Returns the median of all others.
double measure_steps(const char* title, const std::string& layers, const std::vector<Way>& ways, int steps,
                     bool& good) {
  const test::TemporaryFolder folder;
  std::vector<std::unique_ptr<Paced>> runs;
  for (const Way& way : ways)
    runs.push_back(paced(layers, options(way, steps + warm_up), folder / std::to_string(runs.size())));
  take_turns(runs, steps);
  std::printf("%s, medians of %d steps\n  %-28s %10s %10s %10s\n", title, steps, "", "others, us", "due, us",
              "cost");
  std::vector<double> all;
  for (std::size_t i = 0; i < ways.size(); ++i) {
    const Way& way = ways[i];
    const double due = median_step(runs[i]->steps, &way.rhythm, true);
    const double others = median_step(runs[i]->steps, &way.rhythm, false);
    const double cost = 100.0 * (due / others - 1.0) / way.rhythm.every;
    std::printf("  %-28s %10.1f %10.1f %+8.2f %%", way.name.c_str(), 1e6 * others, 1e6 * due, cost);
    if (way.bar > 0.0) std::printf("   (bar %.1f)", way.bar);
    std::printf("\n");
    good = good && (way.bar == 0.0 || cost <= way.bar);
    all.push_back(others);
  }
  std::printf("\n");
  return percentile(all, 0.5);
}

/// What the hooks cost where nothing is due, seen on a model that takes no time, as a share of a step.
bool measure_idle(double step, int steps) {
  const test::TemporaryFolder folder;
  std::vector<std::unique_ptr<Paced>> runs;
  for (int i = 0; i < 8; ++i)
    runs.push_back(
        paced("[64,8,10]", i % 2 == 0 ? "" : "save_interval=1000000000", folder / std::to_string(i)));
  take_turns(runs, steps);
  double seconds[2] = {};
  for (std::size_t i = 0; i < runs.size(); ++i) seconds[i % 2] += median_step(runs[i]->steps) / 4.0;
  const double cost = seconds[1] - seconds[0], share = 100.0 * cost / step;
  std::printf(
      "Nothing is due: %.2f us a step over %.1f us without a recorder; of a step at 1 M: %+.3f %% (bar "
      "0.1)\n\n",
      1e6 * cost, 1e6 * seconds[0], share);
  return share <= 0.1;
}

}  // namespace
}  // namespace trainyard::bench

/// `bench recorder [reduction | steps | --quick]`.
int main(int count, char** words) {
  using namespace trainyard::bench;
  const std::string only = count > 1 ? words[1] : "";
  const bool quick = only == "--quick";
  at::set_num_threads(1);
  bool good = true;
  if (only != "steps") {
    good = measure_reduction(4 << 20, quick ? 2 : 200, quick ? 2 : 10, true);
    good = measure_reduction(quick ? 8 << 20 : 400 << 20, quick ? 2 : 5, 1, false) && good;
  }
  if (only == "reduction") return good ? 0 : 1;
  std::vector<Way> ways = {{"losses, every step", What::losses, {1}, 0},
                           {"reductions, every step", What::reductions, {1}, 5.0},
                           {"reductions, every 10", What::reductions, {10}, 0},
                           {"reductions, every 50", What::reductions, {50}, 0},
                           {"reductions, every 500", What::reductions, {500}, 0.5},
                           {"tensors, every 500", What::tensors, {500}, 0}};
  if (quick) ways.resize(3);
  const double step = measure_steps("A step of an MLP of 1 M parameters, batch 64, weights and gradients",
                                    "[64,960,960,10]", ways, quick ? 60 : 4000, good);
  good = measure_idle(step, quick ? 40 : 4000) && good;
  if (quick) return 0;
  std::vector<Way> large(ways.begin(), ways.begin() + 3);
  large[1].bar = 10.0;
  measure_steps("A step of an MLP of 20 M parameters, batch 64", "[64,4400,4400,10]", large, 400, good);
  return good ? 0 : 1;
}
