// The executor `pipelined` on two threads against itself on one, in whole runs of the host, the data made before:
// trainyard bench pipelined [--quick] [CASE]. Both train the same batches in turn, and are refused where their weights
// differ by a bit.
#include <ATen/Parallel.h>
#include <ATen/ops/equal.h>

#include <exception>
#include <semaphore>
#include <stdexcept>
#include <thread>

#include "tools/bench/arguments.hpp"
#include "tools/bench/contest.hpp"
#include "tools/bench/ours.hpp"

namespace trainyard::bench {
namespace {

constexpr int samples = 32;  ///< of a batch

struct Case {
  const char* name;
  int stages, width, update_size;
  int steps;  ///< of a chunk
};

/// A run that waits for its next turn between two steps. One that ended and began again would make a new pipeline, with
/// all that is in flight.
class Turns final : train::LoopHost {
 public:
  explicit Turns(std::vector<std::string> sets)
      : thread_([this, sets = std::move(sets)] {
          try {
            train(sets);
          } catch (...) {
            failed_ = std::current_exception();
          }
          done_.release();
        }) {
    wait();
  }
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;
  ~Turns() override {
    pause_ = 1;
    ++until_;
    go_.release();
  }
  void operator()(int steps) {
    until_ += steps;
    go_.release();
    wait();
  }
  const std::vector<NamedTensor>& weights() const { return weights_; }

 private:
  void train(const std::vector<std::string>& sets) {
    at::set_num_threads(1);
    cli::RunFile file = run_file(sets, "executor.toml");
    train::Run run(file.config, file.registry);
    run.build_model();
    train::LoopParts parts;
    parts.host = this;
    parts.signal = &pause_;
    run.build_loop(std::move(parts));
    weights_ = run.network().parameters();
    run.loop().fit();
  }
  void wait() {
    done_.acquire();
    if (failed_) std::rethrow_exception(failed_);
  }
  bool log_due(std::int64_t step) override {  // ahead of it
    if (step <= until_) return false;
    done_.release();
    go_.acquire();
    return false;
  }

  std::atomic<int> pause_{0};
  std::int64_t until_ = 0;
  std::vector<NamedTensor> weights_;
  std::exception_ptr failed_;
  std::binary_semaphore go_{0}, done_{0};
  std::jthread thread_;  ///< last: it uses the rest
};

std::vector<std::string> sets_of(const Case& each, const char* mode, const char* checkpoint) {
  const auto shape = std::to_string(each.width);
  return {"model.type=residual_mlp",
          "model.width=" + shape,
          "model.blocks=" + std::to_string(each.stages - 2),
          "data.shape=[" + shape + "]",
          "data.samples=" + std::to_string(samples),
          "data.train.batch_size=" + std::to_string(samples),
          "optimizer.type=sgd",
          "optimizer.lr=0.01",
          "optimizer.momentum=0.9",
          "executor.type=pipelined",
          "executor.reference_batch_size=128",
          "executor.update_size=" + std::to_string(each.update_size),
          std::string("executor.mode=") + mode,
          std::string("executor.checkpoint=") + checkpoint};
}

void require_same_bits(const Turns& a, const Turns& b) {
  for (std::size_t i = 0; i < a.weights().size(); ++i)
    if (!at::equal(a.weights()[i].tensor, b.weights()[i].tensor))
      throw std::runtime_error(a.weights()[i].name + " differs between one thread and two");
}

void measure(const Case& each, int rounds) {
  Turns sim(sets_of(each, "sim", "drain")), threads(sets_of(each, "threads", "drain")),
      kept(sets_of(each, "sim", "in_flight")), kept_threads(sets_of(each, "threads", "in_flight"));
  const std::vector<Contender> contenders = {
      {"sim, checkpoint = \"drain\"", [&] { sim(each.steps); }},
      {"threads, checkpoint = \"drain\"", [&] { threads(each.steps); }},
      {"sim, checkpoint = \"in_flight\"", [&] { kept(each.steps); }},
      {"threads, checkpoint = \"in_flight\"", [&] { kept_threads(each.steps); }},
  };
  for (const Contender& contender : contenders)  // until all stages have gradients to go back
    for (int steps = 0; steps * samples < 2 * each.stages * each.update_size; steps += each.steps)
      contender.chunk();
  const std::vector<Times> times = contest(contenders, rounds);
  require_same_bits(sim, threads);
  require_same_bits(kept, kept_threads);
  require_same_bits(sim, kept);
  const int units = each.steps * samples / each.update_size;
  std::printf("%s: %d stages of width %d, updates of %d\n  %-36s %9s %9s   %s\n", each.name, each.stages,
              each.width, each.update_size, "", "min", "p20",
              "us of a stage and update; threads over sim: p20, minima");
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    const auto micros = [&](std::size_t k, double share) {
      return 1e6 * percentile(times[k].wall, share) / units / each.stages;
    };
    std::printf("  %-36s %9.2f %9.2f", contenders[i].name.c_str(), micros(i, 0.0), micros(i, 0.2));
    if (i % 2 == 1)
      std::printf("   %.2fx, %.2fx", micros(i - 1, 0.2) / micros(i, 0.2),
                  micros(i - 1, 0.0) / micros(i, 0.0));
    std::printf("\n");
  }
  std::fflush(stdout);
}

}  // namespace
}  // namespace trainyard::bench

int main(int argc, char** argv) {
  using namespace trainyard::bench;
  const Arguments arguments(argc, argv);
  constexpr Case cases[] = {
      {"wide", 16, 256, 1, 2}, {"eights", 16, 256, 8, 8}, {"deep", 34, 256, 1, 1}, {"narrow", 34, 32, 1, 4}};
  for (const Case& each : cases)
    if (arguments.wants(each.name)) measure(each, arguments.quick ? 2 : 40);
  return 0;
}
