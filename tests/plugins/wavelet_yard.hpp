// What tests of the executor wavelet train: small networks, and a workbench that does what the host's does of a step.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <catch2/catch.hpp>

#include <trainyard/executor.hpp>
#include <trainyard/graph/builder.hpp>
#include <trainyard/graph/network.hpp>
#include <trainyard/loss.hpp>
#include <trainyard/optimizer.hpp>
#include <trainyard/state.hpp>
#include <trainyard/testing/host.hpp>

#include "support/plugin.hpp"

namespace wavelet {

using namespace trainyard;

inline void sleep_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

/// Half the squared distance, the mean over samples.
class Squares final : public Loss {
 public:
  void check(const std::vector<std::int64_t>&, const BatchSchema&) const override {}
  at::Tensor forward(const at::Tensor& output, const Batch& batch) const override {
    return (output - batch.target).square().sum(1).mean() * 0.5;
  }
};

/// What the host does of a workbench, without events.
class PlainBench : public Workbench {
 public:
  PlainBench(Network& network, Optimizer& optimizer) : network_(network), optimizer_(optimizer) {}

  void backward(StepWork& work, std::size_t micro, const ForwardPass& = {}) override {
    const Graded graded = grade(work.micros[micro], work.pass(micro));
    graded.loss.backward(at::full({}, work.share(micro), graded.loss.options()));
  }
  void is_whole(std::size_t parameter) override {
    whole.emplace_back(parameter, network_.parameters()[parameter].tensor.grad().clone());
  }
  void update_is_of(const StepWork& work) override { taken_up.push_back(work.step); }
  Update update(const std::function<void()>&) override {
    const c10::NoGradGuard no_grad;
    for (const auto& [parameter, gradient] : std::exchange(whole, {})) {
      CHECK(at::equal(network_.parameters()[parameter].tensor.grad(), gradient));
      left.push_back(parameter);
    }
    const Update update = outcome();
    if (update == Update::done) {
      for (ParamGroup& group : optimizer_.groups()) group.lr = group.base_lr;
      optimizer_.step();
      ++updates_;
    }
    for (const NamedTensor& each : network_.parameters()) each.tensor.mutable_grad().reset();
    return update;
  }
  Network& network() override { return network_; }
  Loss& loss() override { return loss_; }
  Optimizer& optimizer() override { return optimizer_; }
  Graded grade(const Batch& batch, const ForwardContext& pass, const ForwardPass& = {}) override {
    return grade(network_, batch, pass);
  }
  std::unique_ptr<Network> twin() override { return network_.twin(); }
  Graded grade(Network& twin, const Batch& batch, const ForwardContext& pass) override {
    sleep_for(delay());
    Graded graded{twin.forward(batch, pass), {}};
    graded.loss = loss_.forward(graded.output, batch);
    sleep_for(delay());
    return graded;
  }
  double loss_scale() const override { return 1.0; }
  void report(const Graded& graded, const Batch&) override { losses.push_back(graded.loss.item<double>()); }
  Rate rate(std::int64_t) const override { return {}; }
  std::int64_t updates() const override { return updates_; }
  void clip(std::vector<at::Tensor>&) const override {}
  bool autocasts() const override { return false; }
  std::int64_t accumulation() const override { return 1; }
  bool drops() const override { return false; }
  Filling filling(std::string_view) const override { return {}; }
  std::unique_ptr<Network> build(std::uint64_t) override { return nullptr; }
  bool heard(Event) const override { return false; }
  void fire(Event, StepWork&, std::size_t, Graded&) override {}
  bool take(Control) override { return false; }

  std::vector<double> losses;
  std::vector<std::pair<std::size_t, at::Tensor>> whole;  ///< since the last update
  std::vector<std::size_t> left;                       ///< all that were, with what they have at the update
  std::vector<std::int64_t> taken_up;                  ///< steps
  std::function<double()> delay = [] { return 0.0; };  ///< seconds; any thread
  std::function<Update()> outcome = [] { return Update::done; };

 private:
  Network& network_;
  Optimizer& optimizer_;
  Squares loss_;
  std::int64_t updates_ = 0;
};

/// Up to twice a mean, drawn anew each time.
inline std::function<double()> random_delays(double mean) {
  return [mean, state = std::make_shared<std::atomic<std::uint32_t>>(1)] {
    const std::uint32_t x = state->fetch_add(1) * 2654435761u;
    return 2.0 * mean * static_cast<double>(x >> 8) / static_cast<double>(1u << 24);
  };
}

/// Of updates in turn: plugins skip some, and have others repeated.
inline std::function<Update()> mixed_outcomes() {
  return [count = 0]() mutable {
    ++count;
    if (count % 5 == 2) return Update::skipped;
    return count % 7 == 3 ? Update::repeat : Update::done;
  };
}

/// With weights and statistics of that type.
inline std::unique_ptr<GraphNetwork> network_of(Graph graph, at::ScalarType dtype) {
  for (GraphValue& value : graph.values)
    if (value.initializer.defined() && value.initializer.is_floating_point()) {
      value.initializer = value.initializer.detach().to(dtype);
      value.dtype = dtype;
    }
  graph.infer_shapes();
  return std::make_unique<GraphNetwork>(std::move(graph));
}

/// For rows of six numbers.
inline BatchSchema six_numbers(at::ScalarType dtype) {
  BatchSchema schema;
  schema.inputs = {{.name = "x", .shape = {6}, .dtype = dtype}};
  return schema;
}

/// A network with the same weights each time.
inline std::unique_ptr<GraphNetwork> small_network(at::ScalarType dtype = at::kDouble,
                                                   bool normalised = false) {
  GraphBuilder b(six_numbers(dtype), 3);
  ValueId x = b.tanh(b.linear(b.input(), "fc1", 10));
  if (normalised) x = b.batch_norm(x, "bn");
  return network_of(b.finish(b.linear(x, "fc2", 3)), dtype);
}

/// The same with convolutions, on the rows as images of 2 x 3.
inline std::unique_ptr<GraphNetwork> small_convolution() {
  GraphBuilder b(six_numbers(at::kDouble), 3);
  const ValueId x =
      b.tanh(b.conv2d(b.reshape(b.input(), {-1, 1, 2, 3}), "conv1", 4, {.kernel = 3, .padding = 1}));
  const ValueId y = b.tanh(b.conv2d(x, "conv2", 3, {.kernel = 3, .padding = 1}));
  return network_of(b.finish(b.linear(b.flatten(y), "fc", 3)), at::kDouble);
}

inline std::vector<Batch> batches(std::size_t count, std::int64_t size, at::ScalarType dtype = at::kDouble) {
  at::Generator random = at::detail::createCPUGenerator(7);
  std::vector<Batch> made;
  for (std::size_t i = 0; i < count; ++i) {
    Batch& batch = made.emplace_back();
    batch.inputs = {at::randn({size, 6}, random, at::kDouble).to(dtype)};
    batch.target = at::randn({size, 3}, random, at::kDouble).to(dtype);
    batch.indices.resize(static_cast<std::size_t>(size));
    batch.weight = static_cast<double>(size);
  }
  return made;
}

inline StepWork work_of(std::span<Batch> micros, std::int64_t step) {
  StepWork work{.micros = micros, .step = step};
  for (const Batch& micro : micros) {
    work.weight += micro.weight;
    work.samples += micro.size();
  }
  return work;
}

/// A network, its optimizer and a bench.
struct Yard {
  Yard(std::unique_ptr<Network> made, const Table& options)
      : network(std::move(made)), optimizer(test::make<Optimizer>("sgd", options)) {
    at::set_num_threads(1);  // else a thread that has not computed yet may divide sums otherwise than another
    optimizer->common.lr = 0.05;
    optimizer->open(make_groups(network->parameters(), optimizer->common));
    bench = std::make_unique<PlainBench>(*network, *optimizer);
  }
  std::vector<at::Tensor> weights() const {
    std::vector<at::Tensor> result;
    for (const NamedTensor& each : network->parameters()) result.push_back(each.tensor.detach().clone());
    return result;
  }
  /// Of the optimizer.
  std::vector<at::Tensor> buffers() const {
    State state;
    StateWriter writer(state);
    optimizer->save(writer);
    std::vector<at::Tensor> result;
    for (const auto& [name, tensor] : state.tensors) result.push_back(tensor.detach().clone());
    return result;
  }

  testing::FakeHost host;
  std::unique_ptr<Network> network;
  std::unique_ptr<Optimizer> optimizer;
  std::unique_ptr<PlainBench> bench;
};

inline double distance(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  double most = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, (a[i] - b[i]).abs().max().item<double>());
  return most;
}

inline const Table momentum = test::table({{"momentum", 0.9}});

}  // namespace wavelet
