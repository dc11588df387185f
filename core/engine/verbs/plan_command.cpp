#include "core/engine/verbs/commands.hpp"

#include <cstdio>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros_like.h>

#include <trainyard/graph/graph.hpp>

#include "core/engine/swap/swaps.hpp"
#include "core/engine/train/checkpoints.hpp"
#include "core/engine/train/guard.hpp"
#include "core/engine/train/run.hpp"
#include "core/runfile/at_path.hpp"
#include "core/runfile/swap.hpp"

namespace trainyard::train {
namespace {

double megabytes(double bytes) {
  return bytes / (1024.0 * 1024.0);
}

double bytes_of(const std::vector<NamedTensor>& tensors) {
  double bytes = 0;
  for (const NamedTensor& each : tensors) bytes += static_cast<double>(each.tensor.nbytes());
  return bytes;
}

/// Returns the bytes that an optimizer keeps after one update: many make their state in the first.
double bytes_of_state(Run& run) {
  const at::NoGradGuard no_grad;
  for (const NamedTensor& each : run.network().parameters())
    at::Tensor(each.tensor).mutable_grad() = at::zeros_like(each.tensor);
  guarded(run.config().at("optimizer"), 1, [&] { run.optimizer().step(); });
  double bytes = 0;
  const State state = run.live().layer.plugin("optimizer").state();
  for (const auto& [name, tensor] : state.tensors) bytes += static_cast<double>(tensor.nbytes());
  return bytes;
}

/// Returns the bytes of all intermediate values for a micro-batch: the most that autograd may keep.
double activation_bytes(const Graph& graph, std::int64_t micro_batch) {
  double bytes = 0;
  for (const trainyard::Node& node : graph.nodes)
    for (const ValueId output : node.outputs) {
      if (output == no_value) continue;
      const GraphValue& value = graph.values[static_cast<std::size_t>(output)];
      double elements = 1;
      // -1 stands for the rows of a batch, -n for n times as many.
      for (const std::int64_t length : value.shape)
        elements *= static_cast<double>(length < 0 ? -length * micro_batch : length);
      bytes += elements * static_cast<double>(at::elementSize(value.dtype));
    }
  return bytes;
}

}  // namespace

int check_command(const config::RunConfig& config, const plugins::Registry& registry) {
  HostOutputs outputs;
  outputs.log = [](LogLevel level, const std::string& text) {
    if (level >= LogLevel::warning) std::fprintf(stderr, "warning: %s\n", text.c_str());
  };
  Run run(config, registry, outputs);
  run.build_model();
  Bench& bench = run.build_loop({}).bench();
  Checkpoints::check(run.checkpointer(), run);
  Swaps(run).rehearse();
  if (config.distributed.ranks == 1)
    bench.open();
  else  // opening it would need the other ranks
    bench.check_ranks(config.distributed.ranks);
  return 0;
}

int plan_command(const config::RunConfig& config, const plugins::Registry& registry) {
  std::vector<std::string> told;  // by the executor, as it opens
  bool opens = false;
  HostOutputs outputs;
  outputs.log = [&](LogLevel, const std::string& text) {
    if (opens) told.push_back(text);
  };
  Run run(config, registry, outputs);
  run.build_model();
  Bench& bench = run.build_loop({}).bench();
  Swaps(run).rehearse();
  const RunScale& scale = run.scale();

  std::printf("Steps\n");
  std::printf("  data             %lld training samples", static_cast<long long>(run.samples("train")));
  for (const char* split : {"val", "test"})
    if (const std::int64_t samples = run.samples(split); samples > 0)
      std::printf(", %lld %s", static_cast<long long>(samples), split);
  const bool shared = config.distributed.ranks > 1 && !config.distributed.shares.empty();
  std::printf("\n  batch            global %lld = micro %lld x accumulation %lld x world %lld%s\n",
              static_cast<long long>(config.train.batch_size),
              static_cast<long long>(config.train.micro_batch_size),
              static_cast<long long>(config.train.accumulation),
              static_cast<long long>(config.distributed.ranks), shared ? " at most: distributed.shares" : "");
  std::printf("  epoch            %lld steps, %lld samples%s\n",
              static_cast<long long>(scale.steps_per_epoch), static_cast<long long>(scale.samples_per_epoch),
              scale.samples_per_epoch % config.train.batch_size != 0 ? " (the last step is smaller)" : "");
  if (scale.total_steps > 0)
    std::printf("  run              %lld steps (%s)\n", static_cast<long long>(scale.total_steps),
                config.trainer.max_duration.text().c_str());
  else
    std::printf("  run              until %s have passed\n", config.trainer.max_duration.text().c_str());
  for (const config::PlannedSwap& each : config.swaps)
    std::printf("  swap             %s, after step %lld\n", config::text({each.request}).c_str(),
                static_cast<long long>(in_steps(each.at, scale, "swap.at")));
  std::printf("  arithmetic       %s on %s, threads: %d within an operation, %zu between\n",
              config::at_path<std::string>(config.resolved, "trainer.precision")->c_str(),
              run.live().device.str().c_str(), at::get_num_threads(), at::get_num_interop_threads());

  const double parameters = bytes_of(run.network().parameters());
  const double buffers = bytes_of(run.network().buffers());
  const double optimizer = bytes_of_state(run);
  const Graph* graph = run.network().graph();
  const double activations = graph != nullptr ? activation_bytes(*graph, config.train.micro_batch_size) : 0;
  std::printf("Memory (estimate, MiB)\n");
  std::printf("  parameters       %.2f\n  gradients        %.2f\n", megabytes(parameters + buffers),
              megabytes(parameters));
  std::printf("  optimizer        %.2f\n  activations      %.2f%s\n", megabytes(optimizer),
              megabytes(activations), graph != nullptr ? " at most" : " unknown: the model has no graph");
  std::printf("  together         %.2f\n", megabytes(2 * parameters + buffers + optimizer + activations));
  if (config.distributed.ranks > 1) return 0;  // opening it would need the other ranks
  opens = true;
  bench.open();
  const at::NoGradGuard no_grad;
  for (const Batch& batch : run.first_batches("train", 1)) bench.evaluate(batch, {});
  if (!told.empty()) std::printf("Executor\n");
  for (const std::string& text : told) std::printf("  %s\n", text.c_str());
  return 0;
}

}  // namespace trainyard::train
