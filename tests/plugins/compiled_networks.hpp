// Networks, some made at random, and the check that a compiled pass is theirs.
#pragma once

#include <catch2/catch.hpp>

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <trainyard/graph/builder.hpp>
#include <trainyard/graph/network.hpp>

#include "plugins/executor/compiled/tracked_pass.hpp"

namespace trainyard::test {

inline BatchSchema schema_of(std::vector<std::int64_t> shape, at::ScalarType dtype = at::kFloat) {
  BatchSchema schema;
  schema.inputs = {{.name = "x", .shape = std::move(shape), .dtype = dtype}};
  return schema;
}

inline Batch batch_of(const at::Tensor& x) {
  Batch batch;
  batch.inputs = {x};
  batch.indices.resize(static_cast<std::size_t>(x.size(0)));
  std::iota(batch.indices.begin(), batch.indices.end(), 0);
  return batch;
}

inline constexpr ForwardContext training{.training = true};

struct Found {
  at::Tensor output;
  std::vector<at::Tensor> gradients, buffers;
};

inline Found through(GraphNetwork& network, const std::function<at::Tensor(const Batch&)>& forward,
                     const Batch& batch, const at::Tensor& gradient) {
  std::vector<at::Tensor> parameters;
  for (const NamedTensor& each : network.parameters()) parameters.push_back(each.tensor);
  const at::Tensor output = forward(batch);
  Found found{.output = output.detach().clone()};
  found.gradients = torch::autograd::grad({output}, parameters, {gradient}, std::nullopt, false, true);
  for (at::Tensor& each : found.gradients) each = each.defined() ? each.clone() : each;
  for (const NamedTensor& each : network.buffers()) found.buffers.push_back(each.tensor.clone());
  return found;
}

inline double apart(const at::Tensor& a, const at::Tensor& b) {
  return (a.cpu() - b.cpu()).abs().max().item<double>();
}

/// As near to the truth as LibTorch's own, or nearly so.
inline bool is_near(const at::Tensor& found, const at::Tensor& eager, const at::Tensor& truth) {
  if (!truth.defined()) return !found.defined();
  if (!found.defined()) return false;
  return apart(found, truth) <=
         6.0 * apart(eager, truth) + 2e-5 * std::max(truth.abs().max().item<double>(), 0.5);
}

/// Returns how far each gradient of a network moves, in several draws at most, where its input and the gradient of its output move by
/// what rounding of `size` comes to: next to the kink of a ReLU that is a whole unit's share. Running statistics stay as they are.
inline std::vector<double> moved_by_rounding(GraphNetwork& exact, const at::Tensor& wide,
                                             const at::Tensor& gradient, const Found& truth, double size,
                                             double (*measure)(const at::Tensor&, const at::Tensor&),
                                             double of_weights = 0.0) {
  std::vector<at::Tensor> statistics, weights;
  for (const NamedTensor& each : exact.buffers()) statistics.push_back(each.tensor.clone());
  for (const NamedTensor& each : exact.parameters()) weights.push_back(each.tensor.detach().clone());
  const auto put_weights = [&](double part) {
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < weights.size(); ++i)
      exact.parameters()[i].tensor.copy_(
          part == 0.0 ? weights[i] : weights[i] * (1.0 + part * at::randn_like(weights[i])));
  };
  std::vector<double> most(truth.gradients.size(), 0.0);
  for (int draw = 0; draw < 8 && wide.is_floating_point(); ++draw) {
    if (of_weights != 0.0) put_weights(of_weights);
    const Found near = through(
        exact, [&](const Batch& b) { return exact.forward(b, training); },
        batch_of(wide * (1.0 + size * at::randn_like(wide))),
        gradient * (1.0 + size * at::randn_like(gradient)));
    for (std::size_t i = 0; i < most.size(); ++i)
      if (truth.gradients[i].defined())
        most[i] = std::max(most[i], measure(near.gradients[i], truth.gradients[i]));
  }
  if (of_weights != 0.0) put_weights(0.0);
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < statistics.size(); ++i) exact.buffers()[i].tensor.copy_(statistics[i]);
  return most;
}

inline Graph in_double(Graph graph) {
  for (GraphValue& value : graph.values) {
    if (value.dtype == at::kFloat) value.dtype = at::kDouble;
    if (value.initializer.defined() && value.initializer.is_floating_point())
      value.initializer = value.initializer.to(at::kDouble);
  }
  return graph;
}

/// Calls `told` with the number of each parameter whose gradient is whole.
class Listener {
 public:
  using Told = std::function<void(std::size_t parameter)>;
  Listener(const GraphNetwork& network, const Told& told) {
    for (const NamedTensor& each : network.parameters()) {
      torch::autograd::impl::set_post_acc_grad_hooks(each.tensor,
                                                     std::make_unique<Hook>(parameters_.size(), told));
      parameters_.push_back(each.tensor);
    }
  }
  ~Listener() {
    for (const at::Tensor& each : parameters_) torch::autograd::impl::set_post_acc_grad_hooks(each, nullptr);
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

 private:
  struct Hook final : torch::autograd::PostAccumulateGradHook {
    Hook(std::size_t number, Told told) : number(number), told(std::move(told)) {}
    void operator()(const at::Tensor&) override { told(number); }
    std::size_t number;
    Told told;
  };
  std::vector<at::Tensor> parameters_;
};

/// Who waits for gradients gets the bits of the pass that nobody waits for, and they stay what they were as they came.
inline void check_handed_out(GraphNetwork& network, const std::function<at::Tensor(const Batch&)>& forward,
                             const Batch& batch, const at::Tensor& gradient,
                             const std::vector<at::Tensor>& expected) {
  const std::vector<NamedTensor> statistics = network.buffers(), parameters = network.parameters();
  std::vector<at::Tensor> before, came(parameters.size());
  for (const NamedTensor& each : statistics) before.push_back(each.tensor.clone());
  {
    const Listener listener(network, [&](std::size_t i) { came[i] = parameters[i].tensor.grad().clone(); });
    forward(batch).backward(gradient);
  }
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    INFO(parameters[i].name);
    at::Tensor parameter = parameters[i].tensor;
    REQUIRE(came[i].defined() == expected[i].defined());
    if (!came[i].defined()) continue;
    REQUIRE(came[i].equal(expected[i]));
    REQUIRE(parameter.grad().equal(expected[i]));
    parameter.mutable_grad().reset();
  }
  for (std::size_t i = 0; i < statistics.size(); ++i) statistics[i].tensor.copy_(before[i]);
}

/// A plan for a network and batches like one.
using Compile = std::function<std::shared_ptr<compiled::TrackedPass>(GraphNetwork&, const Batch&)>;

/// Output, gradients and running statistics of a pass are as near to those of double precision as LibTorch's own,
/// several times after each other: what a pass leaves must not reach the next. A gradient that is not has to be as near as
/// rounding of the input takes the exact one: processors round in other orders, and a unit next to its kink goes either way.
inline void check_same(const std::function<Graph()>& make, const std::vector<at::Tensor>& inputs,
                       const Compile& compile, at::Device device = at::kCPU) {
  GraphNetwork exact(in_double(make())), theirs(make()), ours(make());
  theirs.to(device);
  ours.to(device);
  std::shared_ptr<compiled::TrackedPass> plan;
  for (const at::Tensor& x : inputs) {
    const Batch batch = batch_of(x.to(device)),
                wide = batch_of(x.is_floating_point() ? x.to(at::kDouble) : x);
    if (!plan) plan = compile(ours, batch);
    const at::Tensor gradient = [&] {
      const at::AutoGradMode off(false);
      return at::randn_like(theirs.forward(batch, {}));
    }();
    const Found e = through(
        exact, [&](const Batch& b) { return exact.forward(b, training); }, wide,
        gradient.to(at::kCPU, at::kDouble));
    const Found a = through(
        theirs, [&](const Batch& b) { return theirs.forward(b, training); }, batch, gradient);
    const Found b = through(
        ours, [&](const Batch& b) { return plan->forward(b, training); }, batch, gradient);
    check_handed_out(
        ours, [&](const Batch& b) { return plan->forward(b, training); }, batch, gradient, b.gradients);
    REQUIRE(is_near(b.output, a.output, e.output));
    const std::vector<NamedTensor> parameters = ours.parameters();
    std::vector<double> moved;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      INFO(parameters[i].name);
      if (is_near(b.gradients[i], a.gradients[i], e.gradients[i])) continue;
      if (moved.empty())
        moved = moved_by_rounding(exact, wide.inputs[0], gradient.to(at::kCPU, at::kDouble), e, 5e-6, apart);
      REQUIRE(b.gradients[i].defined() == e.gradients[i].defined());
      INFO("LibTorch's own is " << apart(a.gradients[i], e.gradients[i]) << " apart, the largest is "
                                << e.gradients[i].abs().max().item<double>());
      REQUIRE(apart(b.gradients[i], e.gradients[i]) <= 2.0 * moved[i]);
    }
    for (std::size_t i = 0; i < a.buffers.size(); ++i)
      REQUIRE(is_near(b.buffers[i], a.buffers[i], e.buffers[i]));
  }
}

/// Mixed precision as the host has it: LibTorch's functions take halves.
class Autocast {
 public:
  Autocast() {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::increment_nesting();
  }
  ~Autocast() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;
};

/// The distance of two values as wholes: single numbers next to the kink of a ReLU go either way.
inline double norm_apart(const at::Tensor& a, const at::Tensor& b) {
  return (a.to(at::kDouble) - b.to(at::kDouble)).norm().item<double>();
}

/// About as near to the truth as LibTorch's own mixed precision.
inline bool is_near_as_halves(const at::Tensor& found, const at::Tensor& eager, const at::Tensor& truth) {
  return norm_apart(found, truth) <=
         2.0 * norm_apart(eager, truth) + 0.01 * truth.norm().item<double>() + 1e-6;
}

/// Output, gradients and running statistics with bfloat16 are about as near to those of double precision as LibTorch's own
/// mixed precision is.
inline void check_halves(const std::function<Graph()>& make, const std::vector<at::Tensor>& inputs,
                         const Compile& compile) {
  GraphNetwork exact(in_double(make())), theirs(make()), ours(make());
  // Cells of ReLUs behind each other go either way at many kinks, and their products round weights to 8 bits, too.
  const auto is_rnn = [](const Node& node) { return node.op == "RNN"; };
  const auto& nodes = exact.graph()->nodes;
  const double of_weights = std::any_of(nodes.begin(), nodes.end(), is_rnn) ? 1.0 / 512 : 0.0;
  std::shared_ptr<compiled::TrackedPass> plan;
  for (const at::Tensor& x : inputs) {
    const Batch batch = batch_of(x), wide = batch_of(x.is_floating_point() ? x.to(at::kDouble) : x);
    if (!plan) plan = compile(ours, batch);
    const at::Tensor gradient = [&] {
      const at::AutoGradMode off(false);
      return at::randn_like(exact.forward(wide, {}));
    }();
    const auto in_halves = [](const auto& forward) {
      return [&forward](const Batch& b) {
        const Autocast halves;
        return forward(b).to(at::kFloat);
      };
    };
    const auto exactly = [&](const Batch& b) { return exact.forward(b, training); };
    const auto by_libtorch = [&](const Batch& b) { return theirs.forward(b, training); };
    const auto planned = [&](const Batch& b) { return plan->forward(b, training); };
    const Found e = through(exact, exactly, wide, gradient),
                a = through(theirs, in_halves(by_libtorch), batch, gradient.to(at::kFloat)),
                b = through(ours, in_halves(planned), batch, gradient.to(at::kFloat));
    check_handed_out(ours, in_halves(planned), batch, gradient.to(at::kFloat), b.gradients);
    std::vector<double> moved;
    const auto check = [&](const at::Tensor& found, const at::Tensor& eager, const at::Tensor& truth,
                           std::optional<std::size_t> gradient_number) {
      REQUIRE(found.defined() == truth.defined());
      if (!truth.defined()) return;
      if (is_near_as_halves(found, eager, truth)) return;
      const double own = norm_apart(eager, truth);
      INFO("LibTorch's own is " << own << " apart, and the whole is " << truth.norm().item<double>());
      REQUIRE(gradient_number);
      if (moved.empty())
        moved = moved_by_rounding(exact, wide.inputs[0], gradient, e, 4e-3, norm_apart, of_weights);
      REQUIRE(norm_apart(found, truth) <= 3.0 * (own + moved[*gradient_number]));
    };
    check(b.output, a.output, e.output, std::nullopt);
    for (std::size_t i = 0; i < e.gradients.size(); ++i) {
      INFO(ours.parameters()[i].name);
      check(b.gradients[i], a.gradients[i], e.gradients[i], i);
    }
    for (std::size_t i = 0; i < e.buffers.size(); ++i)
      check(b.buffers[i], a.buffers[i], e.buffers[i], std::nullopt);
  }
}

/// The same each time: near the kink of a ReLU, rounding decides which way a gradient goes. Where a convolution is made
/// with fewer products, and so with more rounding, deep networks have smooth activations here.
inline std::vector<at::Tensor> several(const std::vector<std::int64_t>& shape) {
  at::manual_seed(23);
  return {at::randn(shape), at::randn(shape), at::randn(shape)};
}

/// Rows of one width, each step made of one or two that are there; convolutions in the same way.
inline Graph random_rows(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto pick = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  GraphBuilder b(schema_of({12}), seed);
  std::vector<ValueId> made = {b.linear(b.input(), "in", 12)};
  const std::size_t steps = 3 + pick(12);
  for (std::size_t i = 0; i < steps; ++i) {
    const ValueId x = made[made.size() - 1 - pick(std::min<std::size_t>(made.size(), 3))];
    const ValueId other = made[pick(made.size())];
    const std::string name = "s" + std::to_string(i);
    switch (pick(9)) {
      case 0: made.push_back(b.linear(x, name, 12)); break;
      case 1: made.push_back(b.relu(b.linear(x, name, 12))); break;
      case 2: made.push_back(b.add(x, other)); break;
      case 3: made.push_back(b.relu(b.add(x, other))); break;
      case 4: made.push_back(b.layer_norm(x, name)); break;
      case 5: made.push_back(b.gelu(x)); break;
      case 6: made.push_back(b.mul(b.tanh(x), other)); break;
      case 7: made.push_back(b.reshape(b.reshape(x, {-1, 3, 4}), {-1, 12})); break;
      case 8: made.push_back(b.softmax(x)); break;
    }
  }
  return b.finish(b.add(b.linear(made.back(), "out", 5), b.linear(made[pick(made.size())], "side", 5)));
}

/// Operators element by element of rows, of each other, and of numbers, whose values are read once or more.
inline Graph random_chains(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto pick = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  GraphBuilder b(schema_of({12}), seed);
  std::vector<ValueId> made = {b.linear(b.input(), "a", 12), b.linear(b.input(), "b", 12)};
  const auto number = [&](const std::string& name) {
    const double value = static_cast<double>(pick(9)) * 0.25 - 0.9;
    return b.constant(name + "c", pick(2) == 0 ? at::scalar_tensor(value, at::kFloat)
                                               : at::full({1, 1}, value, at::kFloat));
  };
  constexpr std::array functions = {"Abs",         "Exp",       "Neg", "Relu",      "Sigmoid",
                                    "Softplus",    "Tanh",      "Elu", "LeakyRelu", "Mish",
                                    "HardSigmoid", "HardSwish", "Gelu"};
  constexpr std::array operations = {"Add", "Sub", "Mul", "Max", "Min"};
  const std::size_t steps = 4 + pick(20);
  for (std::size_t i = 0; i < steps; ++i) {
    // Of moderate size, so that exponentials of exponentials stay floats.
    const ValueId x = b.tanh(made[made.size() - 1 - pick(std::min<std::size_t>(made.size(), 3))]);
    const std::string name = "s" + std::to_string(i);
    const auto add = [&](const std::string& op, std::vector<ValueId> inputs) {
      made.push_back(b.node(op, name, std::move(inputs)));
    };
    const std::string operation = operations[pick(operations.size())];
    switch (pick(8)) {
      case 0:
      case 1:
      case 2: add(functions[pick(functions.size())], {x}); break;
      case 3: add(operation, {x, made[pick(made.size())]}); break;
      case 4: add(operation, {x, number(name)}); break;
      case 5: add(operation, {number(name), x}); break;
      case 6: {
        const ValueId above =
            b.node("Add", name + "p", {b.sigmoid(x), b.constant(name + "c", at::scalar_tensor(0.5f))});
        constexpr std::array of_positive = {"Log", "Sqrt", "Reciprocal"};
        pick(2) == 0 ? add(of_positive[pick(3)], {above}) : add("Div", {made[pick(made.size())], above});
        if (pick(3) == 0)
          made.push_back(b.node("Div", name + "d", {b.constant(name + "e", at::scalar_tensor(0.7f)), above}));
        break;
      }
      case 7:
        add("Clip", {x, b.constant(name + "l", at::scalar_tensor(-0.3f)),
                     b.constant(name + "h", at::scalar_tensor(0.6f))});
        break;
    }
    if (pick(6) == 0) made.push_back(b.linear(made.back(), name + "n", 12));
  }
  return b.finish(b.linear(made.back(), "out", 5));
}

inline Graph random_images(std::uint64_t seed, std::int64_t size) {
  std::mt19937_64 random(seed);
  const auto pick = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const std::int64_t channels = std::array{8, 16, 20}[pick(3)];
  GraphBuilder b(schema_of({3, size, size}), seed);
  const auto activation = [&](ValueId x) { return size > 8 ? b.tanh(x) : b.relu(x); };
  std::vector<ValueId> made = {b.conv2d(b.input(), "in", channels, {.padding = 1})};
  const std::size_t steps = 3 + pick(8);
  for (std::size_t i = 0; i < steps; ++i) {
    const ValueId x = made[made.size() - 1 - pick(std::min<std::size_t>(made.size(), 3))];
    const ValueId other = made[pick(made.size())];
    const std::string name = "s" + std::to_string(i);
    switch (pick(9)) {
      case 0: made.push_back(b.conv2d(x, name, channels, {.padding = 1})); break;
      case 1: made.push_back(activation(b.conv2d(x, name, channels, {.kernel = 1, .bias = false}))); break;
      case 2: made.push_back(b.add(x, other)); break;
      case 3: made.push_back(activation(b.add(x, other))); break;
      case 4: made.push_back(b.batch_norm(x, name)); break;
      case 5: made.push_back(activation(b.batch_norm(x, name))); break;
      case 6: made.push_back(b.sigmoid(x)); break;
      case 7: made.push_back(b.max_pool2d(x, 3, 1, 1)); break;
      case 8: made.push_back(activation(b.conv2d(x, name, channels, {.kernel = 5, .padding = 2}))); break;
    }
  }
  return b.finish(b.linear(b.flatten(b.average_pool2d(made.back(), 2, 2)), "out", 3));
}

inline Graph two_layers() {
  GraphBuilder b(schema_of({6}), 3);
  return b.finish(b.linear(b.relu(b.linear(b.input(), "a", 8)), "b", 4));
}

}  // namespace trainyard::test
