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

/// A training on a thread of its own that goes on for so many steps at a time; it never ends in between.
class Paced {
 public:
  explicit Paced(const std::vector<std::string>& sets)
      : file_(run_file(sets)), run_(file_.config, file_.registry) {
    run_.build_model();
    train::LoopParts parts;
    parts.signal = &stop_;
    parts.log_due = [this](std::int64_t step) {
      if (step == until_) pause();
      return false;
    };
    run_.build_loop(std::move(parts));
    thread_ = std::thread([this] { run_.loop().fit(); });
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
  /// CPU time of the loops' threads.
  static double loop_seconds() { return loop_seconds_; }

 private:
  void pause() {
    if (until_ > 1) loop_seconds_ += thread_seconds() - resumed_;
    if (until_ > 1) done_.release();
    go_.acquire();
    resumed_ = thread_seconds();
  }

  inline static double loop_seconds_ = 0.0;
  cli::RunFile file_;
  train::Run run_;
  std::atomic<int> stop_{0};
  std::atomic<std::int64_t> until_{1};
  double resumed_ = 0.0;
  std::binary_semaphore go_{0}, done_{0};
  std::thread thread_;
};

struct Way {
  std::string name;
  std::string recorder;  ///< its options, in one line; empty: none
  double bar;            ///< of the ratio; 0: none
};

std::string reductions(const char* interval) {
  std::string text = "save_interval=1000000000, collections=[";
  for (const char* name : {"weights", "biases", "gradients"})
    text += std::string("{name=\"") + name + "\", save_interval=" + interval +
            ", reductions=[\"min\",\"max\",\"abs_mean\",\"l2\",\"nonfinite\",\"zeros\"]},";
  return text + "]";
}

std::string raw(const char* interval) {
  std::string text = "save_interval=1000000000, collections=[";
  for (const char* name : {"weights", "biases", "gradients"})
    text += std::string("{name=\"") + name + "\", save_interval=" + interval + "},";
  return text + "]";
}

bool measure_steps(const char* title, const std::string& layers, std::vector<Way> ways, int rounds,
                   int steps) {
  const test::TemporaryFolder folder;
  std::vector<std::unique_ptr<Paced>> runs;
  std::vector<Contender> contenders;
  for (const Way& way : ways) {
    std::vector<std::string> sets = {"model.layers=" + layers, "optimizer.type=sgd", "optimizer.lr=0.0001",
                                     "run.output_dir=" + folder / way.name};
    if (!way.recorder.empty()) sets.push_back("recorder={type=\"trial\", " + way.recorder + "}");
    runs.push_back(std::make_unique<Paced>(sets));
    contenders.push_back({way.name, [run = runs.back().get(), steps] { (*run)(steps); }});
  }
  const std::vector<Times> times = contest(contenders, rounds, &Paced::loop_seconds);
  print(title, "us a step", 1e-6, steps, contenders, times);
  bool good = true;
  for (std::size_t i = 1; i < ways.size(); ++i) {
    const double cost = 100.0 * (ratio(times[i], times[0]) - 1.0);
    std::printf("  %-44s %+7.2f %%", ways[i].name.c_str(), cost);
    if (ways[i].bar > 0.0) std::printf("   (bar %.1f)", ways[i].bar);
    std::printf("\n");
    good = good && (ways[i].bar == 0.0 || cost <= ways[i].bar);
  }
  std::printf("\n");
  return good;
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
  const std::vector<Way> ways = {{"off", "", 0},
                                 {"nothing is due", "save_interval=1000000000", 0.1},
                                 {"losses, every step", "save_interval=1", 0},
                                 {"reductions, every step", reductions("1"), 5.0},
                                 {"reductions, every 10", reductions("10"), 0},
                                 {"reductions, every 50", reductions("50"), 0},
                                 {"reductions, every 500", reductions("500"), 0.5},
                                 {"tensors, every 500", raw("500"), 0}};
  good = measure_steps("A step of an MLP of 1 M parameters, batch 64, weights and gradients",
                       "[64,960,960,10]", ways, quick ? 1 : 5, quick ? 10 : 500) &&
         good;
  if (quick) return 0;
  std::vector<Way> large(ways.begin(), ways.begin() + 5);
  large[3].bar = 10.0;
  good = measure_steps("A step of an MLP of 20 M parameters, batch 64", "[64,4400,4400,10]", large, 5, 10) &&
         good;
  return good ? 0 : 1;
}
