#include "overheads.hpp"

#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <numeric>

#include <trainyard/graph/builder.hpp>

#include "plan.hpp"

namespace partitioned {

using namespace trainyard;
namespace {

constexpr int length = 32, turns = 7;

GraphNetwork chain() {
  BatchSchema schema;
  schema.inputs = {{.name = "x", .shape = {1}, .dtype = at::kFloat}};
  GraphBuilder b(schema, 0);
  ValueId x = b.mul(b.input(), b.parameter("w", at::ones({1})));
  for (int i = 1; i < length; ++i) x = b.relu(x);
  return GraphNetwork(b.finish(x));
}

/// The least microseconds forward, and backward.
std::pair<double, double> least(const std::function<at::Tensor()>& forward) {
  using Clock = std::chrono::steady_clock;
  const auto between = [](Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double, std::micro>(to - from).count();
  };
  double there = std::numeric_limits<double>::infinity(), back = there;
  for (int i = 0; i < turns; ++i) {
    const auto begin = Clock::now();
    const at::Tensor output = forward();
    const auto turn = Clock::now();
    torch::autograd::backward({output}, {at::ones_like(output)});
    const auto end = Clock::now();
    there = std::min(there, between(begin, turn));
    back = std::min(back, between(turn, end));
  }
  return {there, back};
}

}  // namespace

Overheads measured_overheads(Crew& crew) {
  GraphNetwork network = chain();
  const Graph& graph = *network.graph();
  Batch batch;
  batch.inputs = {at::ones({1, 1})};
  const ForwardContext context{.training = true};
  const Times times = estimated(graph, 1, 1);
  const StepGraph step(graph, times, 1, Weights::count);
  const std::vector<bool> all(graph.nodes.size(), true), none(graph.nodes.size(), false);
  const std::vector<partition::Cluster> first(graph.nodes.size(), 0);
  const auto plan = std::make_shared<Plan>(
      network, crew,
      Plan::Setup{.segments = segments_of(graph, step.dependences(), {first, first}, all),
                  .apart = none,
                  .step = &step,
                  .latency = assumed.latency,
                  .traced = std::nullopt});
  const auto whole = least([&] { return network.forward(batch, context); });
  const auto parts = least([&] { return plan->forward(batch, context); });
  const double count = static_cast<double>(graph.nodes.size());
  return {.forward = std::max(0.0, parts.first - whole.first) / count,
          .backward = std::max(0.0, parts.second - whole.second) / count,
          .latency = latency_of(crew)};
}

}  // namespace partitioned
