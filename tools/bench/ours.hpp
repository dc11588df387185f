// The host in a benchmark: tools/bench/loop.toml, an MLP 64-128-10, batch 64, or another file there, a number of
// steps at a time.
#pragma once

#include <atomic>
#include <cstdlib>
#include <numeric>

#include "core/cli/run_file.hpp"
#include "core/engine/train/run.hpp"

namespace trainyard::bench {

constexpr std::int64_t batch_size = 64;

struct Sample {
  at::Tensor input, target;
};

inline cli::RunFile run_file(const std::vector<std::string>& sets, const std::string& name = "loop.toml") {
  std::optional<cli::RunFile> file =
      cli::read_run_file({.files = {TRAINYARD_SOURCE_DIR "/tools/bench/" + name},
                          .sets = sets,
                          .plugin_folders = {TRAINYARD_BENCH_PLUGINS}});
  if (!file) std::exit(2);
  return std::move(*file);
}

/// A run of the host that pauses after a number of steps.
class Ours final : train::LoopHost {
 public:
  explicit Ours(const std::vector<std::string>& sets, const std::string& file = "loop.toml")
      : file_(run_file(sets, file)), run_(file_.config, file_.registry) {
    run_.build_model();
    train::LoopParts parts;
    parts.host = this;
    parts.signal = &pause_;
    run_.build_loop(std::move(parts));
  }
  void operator()(int steps) {
    pause_ = 0;
    until_ = run_.clock().step + steps;
    run_.loop().fit();
  }
  std::vector<at::Tensor> weights() {
    std::vector<at::Tensor> weights;
    for (const NamedTensor& each : run_.network().parameters()) weights.push_back(each.tensor);
    return weights;
  }
  /// All batches of an epoch, in order.
  std::vector<Sample> batches() {
    std::vector<Sample> batches;
    for (train::ActivePlugin& plugin : run_.plugins()) {
      if (plugin.slot().kind != Dataset::kind.name) continue;
      const auto& dataset = plugin.as<Dataset>();
      std::vector<std::int64_t> indices(batch_size);
      for (std::int64_t first = 0; first < dataset.size(); first += batch_size) {
        std::iota(indices.begin(), indices.end(), first);
        const Batch batch = dataset.read(indices, {RandomStream(0, "unused")});
        batches.push_back({batch.input(), batch.target});
      }
    }
    return batches;
  }

 private:
  bool log_due(std::int64_t step) override {
    if (step == until_) pause_ = 1;
    return false;
  }

  cli::RunFile file_;
  train::Run run_;
  std::atomic<int> pause_{0};
  std::int64_t until_ = 0;
};

}  // namespace trainyard::bench
