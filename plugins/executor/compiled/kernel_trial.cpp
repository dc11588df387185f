#include "kernel_trial.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>

#include <ATen/ops/full.h>
#include <ATen/ops/ones_like.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <trainyard/graph/network.hpp>

#include "lib/waits.hpp"
#include "plan.hpp"

namespace compiled {

using trainyard::Graph;
using trainyard::GraphValue;
using trainyard::Node;
using trainyard::ValueId;
namespace lib = trainyard::lib;

namespace {

bool has_directions(const Node& node) {
  return node.op == "Conv" || node.op == "Gemm";
}

/// The node alone; what it reads are initializers. Of a convolution or a linear layer the first input gets a gradient, or the others do.
Graph node_alone(const Graph& graph, const Node& node, std::int64_t samples, bool to_data) {
  Graph made;
  Node copy = node;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i] == trainyard::no_value) continue;
    GraphValue value = graph.values[static_cast<std::size_t>(node.inputs[i])];
    for (std::int64_t& size : value.shape)
      if (size < 0) size *= -samples;
    const bool is_float = value.dtype == at::kFloat;
    if (is_float || !value.initializer.defined())
      value.initializer = at::full(value.shape, is_float ? 0.01 : 0.0, value.dtype);
    value.trainable = is_float && ((i == 0) == to_data || !has_directions(node));
    value.name = "input" + std::to_string(i);
    copy.inputs[i] = made.add_value(std::move(value));
  }
  copy.outputs = {made.add_value({.name = "output", .shape = {}, .initializer = {}})};
  made.outputs = copy.outputs;
  made.nodes.push_back(std::move(copy));
  made.infer_shapes();
  return made;
}

/// One way for one node, forward and backward.
class Contender {
 public:
  Contender(Graph graph, Way way, int threads)
      : network_(std::move(graph)), pass_{network_, {.training = true}} {
    const Graph& its = *network_.graph();
    KernelTimes favoured;
    for (const Direction each : {Direction::forward, Direction::weights, Direction::data})
      favoured.of(way, each) = 0.0;
    const auto table =
        std::make_shared<KernelTable>(KernelTable{{shape_key(its, its.nodes.front()), favoured}});
    const PlanKey key{.inputs = {},
                      .copies = {},
                      .threads = threads,
                      .precision = way == Way::halves ? at::kBFloat16 : at::kFloat};
    plan_ = std::make_shared<Plan>(network_, key, Choices{.kernels = table});
    const auto& used = plan_->kernels();
    is_possible_ = plan_->by_libtorch().empty() &&
                   (way != Way::winograd || std::any_of(used.begin(), used.end(), [](const Kernel& each) {
                      return each.way == Way::winograd;
                    }));
    if (!is_possible_) return;
    const at::AutoGradMode tracks(true);
    std::vector<at::Tensor> parameters;
    for (const trainyard::NamedTensor& each : network_.parameters()) parameters.push_back(each.tensor);
    const at::Tensor output = plan_->forward({}, pass_.context);
    torch::autograd::grad({output}, parameters, {at::ones_like(output)});
  }

  bool is_possible() const { return is_possible_; }
  void forward() { plan_->last().forward(pass_); }
  void backward() { plan_->last().backward(pass_); }

 private:
  trainyard::GraphNetwork network_;
  Pass pass_;
  std::shared_ptr<Plan> plan_;
  bool is_possible_ = false;
};

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// The least time of a call, of several.
class Least {
 public:
  template <class Call>
  void take(const Call& call, int threads) {
    constexpr double shortest = 2e-4;  // to be timed
    const int calls =
        std::isfinite(seconds()) ? std::max(1, static_cast<int>(shortest / (seconds() + 1e-9))) : 1;
    double each = 0.0, waited = 0.0;
    const lib::Disturbance found = lib::measure_undisturbed(
        [&] {
          const double before = lib::seconds_waited();
          const auto begin = Clock::now();
          for (int i = 0; i < calls; ++i) call();
          each = seconds_since(begin) / calls;
          waited = (lib::seconds_waited() - before) / calls;
        },
        [] { return lib::seconds_waited(); });
    if (found.is_quiet)
      quiet_ = std::min(quiet_, each);
    else  // threads that are none of the call's may have waited, too
      rough_ = std::min(rough_, std::max(each - waited / threads, 0.25 * each));
  }
  bool is_rough() const { return !std::isfinite(quiet_); }
  double seconds() const { return is_rough() ? rough_ : quiet_; }

 private:
  double quiet_ = KernelTimes::unknown;
  double rough_ =
      KernelTimes::unknown;  ///< without the time that threads waited for a core, where others had them
};

}  // namespace

KernelTimes tried(const Graph& graph, const Node& node, std::int64_t samples,
                  const std::vector<Way>& ways_tried, bool has_data, int threads) {
  constexpr double enough_products = 1.5e8, most_seconds = 0.04;
  constexpr int rounds = 5, fewest = 2;
  const auto products = static_cast<double>(std::max<std::int64_t>(cost(graph, node).multiply_adds, 1));
  const std::int64_t few = 16;  // share out to threads, and fill tiles
  const std::int64_t part =
      std::min(samples, std::max(few, static_cast<std::int64_t>(std::ceil(enough_products / products))));
  KernelTimes times;
  for (const bool to_data : {false, true}) {
    if (to_data && !(has_data && has_directions(node))) continue;
    std::vector<std::pair<Way, std::unique_ptr<Contender>>> contenders;
    for (const Way way : ways_tried) {
      auto made = std::make_unique<Contender>(node_alone(graph, node, part, to_data), way, threads);
      if (made->is_possible()) contenders.emplace_back(way, std::move(made));
    }
    if (contenders.size() < 2) continue;  // nothing to choose
    const auto time = [&](Direction direction, void (Contender::*run)()) {
      const auto begin = Clock::now();
      std::vector<Least> found(contenders.size());
      for (int round = 0; round < rounds && (round < fewest || seconds_since(begin) < most_seconds); ++round)
        for (std::size_t i = 0; i < contenders.size(); ++i)
          found[i].take([&, &its = *contenders[i].second] { (its.*run)(); }, threads);
      for (std::size_t i = 0; i < contenders.size(); ++i) {
        times.of(contenders[i].first, direction) =
            found[i].seconds() * static_cast<double>(samples) / static_cast<double>(part);
        times.is_rough = times.is_rough || found[i].is_rough();
      }
    };
    if (!to_data) time(Direction::forward, &Contender::forward);
    time(to_data ? Direction::data : Direction::weights, &Contender::backward);
  }
  return times;
}

}  // namespace compiled
