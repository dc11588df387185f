#include "core/engine/engine.hpp"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include <trainyard/error.hpp>
#include <trainyard/graph/graph.hpp>
#include <trainyard/transform.hpp>

#include "core/engine/distributed/nccl.hpp"
#include "core/engine/train/run.hpp"
#include "core/engine/verbs/commands.hpp"
#include "core/engine/verbs/model_show.hpp"
#include "core/engine/verbs/reported.hpp"

namespace trainyard::train {
namespace {

int rates_of(const config::RunConfig& config, const plugins::Registry& registry, std::int64_t most,
             std::vector<StepRate>& rates) {
  Run run(config, registry);
  run.build_model();
  run.build_loop({});
  const std::int64_t steps = run.scale().total_steps;
  if (steps == 0)
    throw ConfigError("trainer.max_duration is a time: there are no steps to draw the schedule over");
  const double base = run.optimizer().common.lr;
  const std::int64_t points = std::min(steps, most);
  for (std::int64_t i = 0; i < points; ++i) {
    // i * (steps - 1) / (points - 1), where the product may be too large.
    const std::int64_t gaps = std::max<std::int64_t>(1, points - 1);
    const std::int64_t done = i * ((steps - 1) / gaps) + i * ((steps - 1) % gaps) / gaps;
    rates.push_back({done + 1, base * run.schedule().factor(done), run.schedule().momentum(done)});
  }
  return 0;
}

/// Returns the cost of the network that the transforms are given; none where there are none, or no graph.
std::optional<NodeCost> cost_before_transforms(config::RunConfig config, const plugins::Registry& registry) {
  if (std::erase_if(config.slots,
                    [](const config::SlotConfig& slot) { return slot.kind == Transform::kind.name; }) == 0)
    return std::nullopt;
  Run run(config, registry);
  run.build_model();
  const Graph* const graph = run.network().graph();
  return graph == nullptr ? std::nullopt : std::optional(whole_cost(*graph));
}

int show_model(const config::RunConfig& config, const plugins::Registry& registry) {
  const std::optional<NodeCost> before = cost_before_transforms(config, registry);
  Run run(config, registry);
  run.build_model();
  const Graph* graph = run.network().graph();
  if (graph == nullptr) throw ConfigError("model " + config.at("model").type + " has no graph to show");
  std::fputs(show(*graph, run.network().dropout_places(), before).c_str(), stdout);
  return 0;
}

int doctor() {
  std::printf("LibTorch       %s, %d intra-op and %zu inter-op threads\n", TRAINYARD_LIBTORCH_VERSION,
              at::get_num_threads(), at::get_num_interop_threads());
  std::printf("CPU kernels    %s\n", at::get_cpu_capability().c_str());
  const bool cuda = dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) != nullptr;
  std::printf(
      "CUDA           %s\n",
      cuda ? (std::to_string(at::detail::getCUDAHooks().deviceCount()) + " usable GPUs").c_str() : dlerror());
  std::printf("NCCL           %s\n",
              std::filesystem::exists(distributed::nccl_library()) ? "in this build" : "not in this build");
  return 0;
}

/// A verb that prints the error that leaves it.
template <auto verb>
struct Reported;
template <class... Arguments, int (*verb)(Arguments...)>
struct Reported<verb> {
  static int call(Arguments... arguments) {
    return reported([&] { return verb(arguments...); });
  }
};

}  // namespace
}  // namespace trainyard::train

extern "C" __attribute__((visibility("default"))) const trainyard::train::Engine* trainyard_engine() {
  using namespace trainyard::train;
  static const Engine engine = {
      .train = Reported<train_command>::call,
      .evaluate = Reported<evaluate_command>::call,
      .plan = Reported<plan_command>::call,
      .check = Reported<check_command>::call,
      .rates = Reported<rates_of>::call,
      .model_show = Reported<show_model>::call,
      .check_rules = Reported<rules_command>::call,
      .tool = Reported<tool_command>::call,
      .doctor = doctor,
  };
  return &engine;
}
