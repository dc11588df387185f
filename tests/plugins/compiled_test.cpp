// The compiled pass against the network's own, on networks made for it and at random.
#include <catch2/catch.hpp>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <numeric>
#include <random>

#include <trainyard/graph/builder.hpp>
#include <trainyard/graph/network.hpp>

#include "plugins/executor/compiled/plan.hpp"

namespace {

using namespace trainyard;
using compiled::Plan;
using compiled::PlanKey;

BatchSchema schema_of(std::vector<std::int64_t> shape, at::ScalarType dtype = at::kFloat) {
  BatchSchema schema;
  schema.inputs = {{.name = "x", .shape = std::move(shape), .dtype = dtype}};
  return schema;
}

Batch batch_of(const at::Tensor& x) {
  Batch batch;
  batch.inputs = {x};
  batch.indices.resize(static_cast<std::size_t>(x.size(0)));
  std::iota(batch.indices.begin(), batch.indices.end(), 0);
  return batch;
}

constexpr ForwardContext training{.training = true};

struct Found {
  at::Tensor output;
  std::vector<at::Tensor> gradients, buffers;
};

Found through(GraphNetwork& network, const std::function<at::Tensor(const Batch&)>& forward,
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

double apart(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

Graph in_double(Graph graph) {
  for (GraphValue& value : graph.values) {
    if (value.dtype == at::kFloat) value.dtype = at::kDouble;
    if (value.initializer.defined() && value.initializer.is_floating_point())
      value.initializer = value.initializer.to(at::kDouble);
  }
  return graph;
}

/// Output, gradients and running statistics of a pass are as near to those of double precision as LibTorch's own,
/// several times after each other: what a pass leaves must not reach the next.
void check_same(const std::function<Graph()>& make, const std::vector<at::Tensor>& inputs,
                const compiled::Choices& choices = {}) {
  GraphNetwork exact(in_double(make())), theirs(make()), ours(make());
  std::shared_ptr<Plan> plan, evaluated;
  for (const at::Tensor& x : inputs) {
    const Batch batch = batch_of(x), wide = batch_of(x.is_floating_point() ? x.to(at::kDouble) : x);
    if (!plan) plan = std::make_shared<Plan>(ours, PlanKey{.inputs = {x.sizes().vec()}}, choices);
    const at::Tensor gradient = [&] {
      const at::AutoGradMode off(false);
      return at::randn_like(theirs.forward(batch, {}));
    }();
    const Found e = through(
        exact, [&](const Batch& b) { return exact.forward(b, training); }, wide, gradient.to(at::kDouble));
    const Found a = through(
        theirs, [&](const Batch& b) { return theirs.forward(b, training); }, batch, gradient);
    const Found b = through(
        ours, [&](const Batch& b) { return plan->forward(b, training); }, batch, gradient);
    const auto near = [](const at::Tensor& found, const at::Tensor& eager, const at::Tensor& truth) {
      if (!truth.defined()) return !found.defined();
      if (!found.defined()) return false;
      return apart(found, truth) <=
             6.0 * apart(eager, truth) + 2e-5 * std::max(truth.abs().max().item<double>(), 0.5);
    };
    REQUIRE(near(b.output, a.output, e.output));
    const std::vector<NamedTensor> parameters = ours.parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      INFO(parameters[i].name);
      REQUIRE(near(b.gradients[i], a.gradients[i], e.gradients[i]));
    }
    for (std::size_t i = 0; i < a.buffers.size(); ++i)
      REQUIRE(near(b.buffers[i], a.buffers[i], e.buffers[i]));
    if (!evaluated)
      evaluated =
          std::make_shared<Plan>(theirs, PlanKey{.inputs = {x.sizes().vec()}, .training = false}, choices);
    const at::NoGradGuard off;
    // Of one network, whose statistics are somewhere by now: those of the three are apart by rounding.
    GraphNetwork wider(in_double(*theirs.graph()));
    const at::Tensor found = evaluated->forward(batch, {});
    REQUIRE(near(found, theirs.forward(batch, {}), wider.forward(wide, {})));
    REQUIRE(!evaluated->is_busy());
    const std::vector<NamedTensor> statistics = theirs.buffers();
    for (std::size_t i = 0; i < a.buffers.size(); ++i) REQUIRE(statistics[i].tensor.equal(a.buffers[i]));
  }
}

/// The same each time: near the kink of a ReLU, rounding decides which way a gradient goes. Where a convolution is made
/// with fewer products, and so with more rounding, deep networks have smooth activations here.
std::vector<at::Tensor> several(const std::vector<std::int64_t>& shape) {
  at::manual_seed(23);
  return {at::randn(shape), at::randn(shape), at::randn(shape)};
}

TEST_CASE("A compiled multilayer perceptron is the network", "[compiled]") {
  check_same(
      [] {
        GraphBuilder b(schema_of({20}), 3);
        ValueId x = b.relu(b.linear(b.input(), "a", 33));
        x = b.gelu(b.linear(x, "b", 16, false), true);
        x = b.tanh(b.linear(x, "c", 7));
        return b.finish(b.linear(b.sigmoid(x), "d", 5));
      },
      several({9, 20}));
}

TEST_CASE("Compiled layers of many products are the network", "[compiled]") {
  check_same(
      [] {
        GraphBuilder b(schema_of({128}), 3);
        const ValueId x = b.relu(b.linear(b.input(), "a", 136));
        return b.finish(b.linear(b.tanh(b.linear(x, "b", 128, false)), "c", 136));
      },
      several({160, 128}));
  const auto tokens = [] { return at::randint(0, 136, {40, 4}, at::kLong); };
  check_same(
      [] {
        GraphBuilder b(schema_of({4}, at::kLong), 3);
        const auto embedded = b.embedding(b.input(), "wte", 136, 128);
        const ValueId x = b.tied_linear(b.tanh(b.flatten(embedded.output, 2)), "one", embedded.weight);
        return b.finish(
            b.reshape(b.tied_linear(b.linear(x, "down", 128), "two", embedded.weight), {-1, 4, 136}));
      },
      {tokens(), tokens(), tokens()});
}

TEST_CASE("Compiled convolutions fill up channels and read pictures as they are", "[compiled]") {
  for (const std::int64_t colours : {1, 3, 5, 16})
    check_same(
        [&] {
          GraphBuilder b(schema_of({colours, 14, 14}), 3);
          ValueId x = b.max_pool2d(b.relu(b.conv2d(b.input(), "a", 6, {.kernel = 5, .padding = 2})), 2, 2);
          x = b.relu(b.batch_norm(
              b.conv2d(x, "b", 20, {.kernel = 3, .stride = 2, .padding = 1, .bias = false}), "n"));
          x = b.average_pool2d(x, 2, 2);
          return b.finish(b.linear(b.flatten(x), "c", 4));
        },
        several({5, colours, 14, 14}));
}

TEST_CASE("Compiled residual blocks keep the gradients of both ways", "[compiled]") {
  const auto block = [](GraphBuilder& b, ValueId x, const std::string& name) {
    ValueId y =
        b.relu(b.batch_norm(b.conv2d(x, name + ".1", 16, {.padding = 1, .bias = false}), name + ".n1"));
    y = b.batch_norm(b.conv2d(y, name + ".2", 16, {.padding = 1, .bias = false}), name + ".n2");
    return b.relu(b.add(y, x));
  };
  check_same(
      [&] {
        GraphBuilder b(schema_of({3, 8, 8}), 3);
        ValueId x = b.relu(b.conv2d(b.input(), "stem", 16, {.padding = 1}));
        x = block(b, block(b, x, "a"), "b");
        return b.finish(b.linear(b.flatten(b.global_average_pool(x)), "c", 4));
      },
      several({6, 3, 8, 8}));
}

TEST_CASE("A compiled ResNet-20 is the network", "[compiled]") {
  const auto check = [](bool smooth) {
    check_same(
        [&] {
          GraphBuilder b(schema_of({3, 16, 16}), 3);
          const auto activation = [&](ValueId x) { return smooth ? b.tanh(x) : b.relu(x); };
          const auto conv = [&](ValueId x, const std::string& name, std::int64_t out, std::int64_t stride) {
            return b.batch_norm(b.conv2d(x, name, out, {.stride = stride, .padding = 1, .bias = false}),
                                name + ".bn");
          };
          ValueId x = activation(conv(b.input(), "stem", 16, 1));
          for (std::int64_t i = 0; i < 9; ++i) {
            const std::int64_t out = 16 << i / 3, stride = i == 3 || i == 6 ? 2 : 1;
            const std::string name = std::to_string(i);
            const ValueId y = conv(activation(conv(x, name + ".1", out, stride)), name + ".2", out, 1);
            if (stride == 2) {
              const std::int64_t size = b.shape(x)[2];
              x = b.pad(b.slice(b.slice(x, 2, 0, size, 2), 3, 0, size, 2), 1, out / 4, out / 4);
            }
            x = activation(b.add(y, x));
          }
          return b.finish(b.linear(b.flatten(b.global_average_pool(x)), "fc", 10));
        },
        several({8, 3, 16, 16}), {.winograd = smooth});
  };
  check(true);
  check(false);
}

TEST_CASE("Compiled convolutions with fewer products have bias and ReLU, and forward may be the only one",
          "[compiled]") {
  // Of 5 x 5: few channels come in and many go out, so that the way back is the plain one.
  for (const std::int64_t kernel : {3, 5})
    check_same(
        [&] {
          GraphBuilder b(schema_of({16, 13, 13}), 3);
          const ValueId x = b.relu(b.conv2d(b.conv2d(b.input(), "a", 16, {.padding = 1}), "b", 24,
                                            {.kernel = kernel, .padding = kernel / 2}));
          return b.finish(b.linear(b.flatten(b.average_pool2d(x, 3, 3)), "c", 4));
        },
        several({3, 16, 13, 13}));
}

TEST_CASE("A compiled transformer is the network, its tied weights with it", "[compiled]") {
  const auto tokens = [] { return at::randint(0, 11, {3, 8}, at::kLong); };
  check_same(
      [] {
        GraphBuilder b(schema_of({8}, at::kLong), 3);
        const auto embedded = b.embedding(b.input(), "wte", 11, 16);
        ValueId x = b.flatten(b.add(embedded.output, b.normal_parameter("wpe", {8, 16}, 0.1)), 2);
        ValueId y = b.linear(b.layer_norm(x, "n1"), "qkv", 48);
        const auto qkv = b.split(b.reshape(y, {-1, 8, 48}), 3, 2);
        y = b.flatten(b.attention(qkv[0], qkv[1], qkv[2], "attn", 4, true), 2);
        x = b.add(x, b.dropout(b.linear(y, "proj", 16), "drop"));
        y = b.linear(b.gelu(b.linear(b.layer_norm(x, "n2"), "fc", 64), true), "out", 16);
        x = b.add(x, y);
        return b.finish(b.reshape(b.tied_linear(b.layer_norm(x, "f"), "head", embedded.weight), {-1, 8, 11}));
      },
      {tokens(), tokens(), tokens()});
}

TEST_CASE("Compiled attention is whole or causal, and of queries, keys and values apart", "[compiled]") {
  for (const bool causal : {true, false})
    for (const std::int64_t time : {1, 5, 40, 70, 130})
      check_same(
          [&] {
            GraphBuilder b(schema_of({time, 12}), 3);
            const ValueId x = b.tanh(b.linear(b.input(), "x", 12));
            const ValueId q = b.linear(x, "q", 12), k = b.linear(x, "k", 12), v = b.linear(x, "v", 12);
            return b.finish(b.add(b.linear(b.attention(q, k, v, "attn", 2, causal), "out", 12), x));
          },
          several({3, time, 12}));
}

TEST_CASE("Compiled attention of packed rows that others read, too", "[compiled]") {
  check_same(
      [] {
        GraphBuilder b(schema_of({40, 12}), 3);
        const ValueId packed = b.linear(b.input(), "qkv", 36), side = b.linear(packed, "side", 12);
        const std::vector<ValueId> parts = b.split(packed, 3, 2);
        const ValueId y = b.attention(parts[0], parts[1], parts[2], "attn", 2, true);
        return b.finish(b.add(b.linear(y, "out", 12), b.add(side, b.linear(packed, "other", 12))));
      },
      several({3, 40, 12}));
}

TEST_CASE("Compiled shortcuts put channels of zeros where they were", "[compiled]") {
  for (const auto& [inside, out, size] : {std::array{16, 32, 8}, std::array{20, 24, 7}, std::array{8, 40, 6}})
    check_same(
        [&] {
          GraphBuilder b(schema_of({3, size, size}), 3);
          ValueId x = b.relu(b.conv2d(b.input(), "a", inside, {.padding = 1}));
          const ValueId y = b.conv2d(x, "b", out, {.kernel = 3, .stride = 2, .padding = 1});
          x = b.slice(b.slice(x, 2, 0, size, 2), 3, 0, size, 2);
          const std::int64_t before = (out - inside) / 2;
          x = b.relu(b.add(y, b.pad(x, 1, before, out - inside - before)));
          return b.finish(b.linear(b.flatten(x), "c", 4));
        },
        several({5, 3, size, size}));
}

/// Rows of one width, each step made of one or two that are there; convolutions in the same way.
Graph random_rows(std::uint64_t seed) {
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
Graph random_chains(std::uint64_t seed) {
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

Graph random_images(std::uint64_t seed, std::int64_t size) {
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

TEST_CASE("Networks made at random are the same compiled", "[compiled]") {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    check_same([&] { return random_rows(seed); }, several({5, 12}));
    // Few pixels, and enough of them that convolutions are made with fewer products.
    const std::int64_t size = seed % 2 == 0 ? 6 : 11;
    check_same([&] { return random_images(seed, size); }, several({4, 3, size, size}));
  }
}

TEST_CASE("Chains of operators made at random are the same compiled", "[compiled]") {
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    INFO("seed " << seed);
    check_same([&] { return random_chains(seed); }, several({seed % 3 == 0 ? 700 : 5, 12}));
  }
}

TEST_CASE("A chain is one step, and what others read of it ends it", "[compiled]") {
  const auto steps = [](const std::function<ValueId(GraphBuilder&, ValueId)>& make) {
    GraphBuilder b(schema_of({6}), 3);
    const ValueId x = b.linear(b.input(), "in", 8);
    GraphNetwork network(b.finish(b.linear(make(b, x), "out", 4)));
    const auto plan = std::make_shared<Plan>(network, PlanKey{.inputs = {{5, 6}}}, compiled::Choices{});
    REQUIRE(plan->by_libtorch().empty());
    return plan->steps() - 2;
  };
  const auto half = [](GraphBuilder& b) { return b.constant("half", at::scalar_tensor(0.5f)); };
  REQUIRE(steps([&](GraphBuilder& b, ValueId x) {
            return b.mul(b.tanh(b.node("Sub", "s", {half(b), b.mul(x, b.sigmoid(x))})), x);
          }) == 1);
  REQUIRE(steps([&](GraphBuilder& b, ValueId x) {
            const ValueId y = b.tanh(b.sigmoid(x));
            const ValueId other = b.layer_norm(y, "n");
            return b.add(other, b.node("Exp", "e", {y}));
          }) == 3);
}

TEST_CASE("Chains leave alone what fills up channels", "[compiled]") {
  // There 0 would become infinite, and NaN in what comes behind.
  check_same(
      [] {
        GraphBuilder b(schema_of({3, 9, 9}), 3);
        ValueId x = b.conv2d(b.input(), "a", 5, {.padding = 1});
        x = b.node("Log", "log", {b.node("Abs", "abs", {x})});
        x = b.conv2d(x, "b", 6, {.kernel = 1});
        return b.finish(b.linear(b.flatten(x), "c", 4));
      },
      several({3, 3, 9, 9}));
}

TEST_CASE("What was given out may be written over ahead of the way back", "[compiled]") {
  GraphBuilder b(schema_of({6}), 3);
  GraphNetwork network(b.finish(b.relu(b.linear(b.input(), "a", 8))));
  const auto plan = std::make_shared<Plan>(network, PlanKey{.inputs = {{5, 6}}}, compiled::Choices{});
  const Batch batch = batch_of(at::randn({5, 6}));
  const at::Tensor weight = network.parameters()[0].tensor, given = at::randn({5, 8});
  const auto gradient = [&](const at::Tensor& output) {
    return torch::autograd::grad({output}, {weight}, {given})[0].clone();
  };
  const at::Tensor expected = gradient(plan->forward(batch, training));
  const at::Tensor output = plan->forward(batch, training);
  output.detach().zero_();
  REQUIRE(gradient(output).equal(expected));
}

TEST_CASE("A number of a chain is read in each pass", "[compiled]") {
  GraphBuilder b(schema_of({6}), 3);
  const ValueId x = b.linear(b.input(), "in", 8), factor = b.constant("factor", at::scalar_tensor(0.5f));
  GraphNetwork network(b.finish(b.mul(b.tanh(x), factor)));
  const auto plan = std::make_shared<Plan>(network, PlanKey{.inputs = {{5, 6}}}, compiled::Choices{});
  const Batch batch = batch_of(at::randn({5, 6}));
  const at::Tensor before = plan->forward(batch, training).detach().clone();
  network.graph()->values[static_cast<std::size_t>(factor)].initializer.mul_(3.0);
  REQUIRE(plan->forward(batch, training).detach().allclose(3.0 * before));
}

TEST_CASE("With nothing fused the bits are the network's", "[compiled]") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    INFO("seed " << seed);
    check_same([&] { return random_rows(seed); }, several({5, 12}), {.fuses = false});
    check_same([&] { return random_images(seed, 6); }, several({4, 3, 6, 6}), {.fuses = false});
  }
}

Graph two_layers() {
  GraphBuilder b(schema_of({6}), 3);
  return b.finish(b.linear(b.relu(b.linear(b.input(), "a", 8)), "b", 4));
}

TEST_CASE("What a compiled pass gives out stays what it was", "[compiled]") {
  GraphNetwork network(two_layers());
  const auto plan = std::make_shared<Plan>(network, PlanKey{.inputs = {{5, 6}}}, compiled::Choices{});
  std::vector<at::Tensor> outputs, copies;
  for (int i = 0; i < 3; ++i) {
    const at::Tensor output = plan->forward(batch_of(at::randn({5, 6})), training);
    REQUIRE(plan->is_busy());
    output.sum().backward();
    outputs.push_back(output.detach());
    copies.push_back(outputs.back().clone());
    const at::Tensor gradient = network.parameters()[0].tensor.grad();
    outputs.push_back(gradient);
    copies.push_back(gradient.clone());
    network.parameters()[0].tensor.mutable_grad().reset();
  }
  REQUIRE_FALSE(plan->is_busy());
  for (std::size_t i = 0; i < outputs.size(); ++i) REQUIRE(outputs[i].equal(copies[i]));
}

TEST_CASE("Gradients of two compiled passes add up", "[compiled]") {
  GraphNetwork network(two_layers());
  const auto plan = std::make_shared<Plan>(network, PlanKey{.inputs = {{5, 6}}}, compiled::Choices{});
  const at::Tensor x = at::randn({5, 6});
  plan->forward(batch_of(x), training).sum().backward();
  const at::Tensor once = network.parameters()[0].tensor.grad().clone();
  plan->forward(batch_of(x), training).sum().backward();
  REQUIRE(apart(network.parameters()[0].tensor.grad(), 2 * once) < 1e-6);
}

TEST_CASE("Gradients of gradients are refused, and a second way back", "[compiled]") {
  GraphNetwork network(two_layers());
  const auto plan = std::make_shared<Plan>(network, PlanKey{.inputs = {{5, 6}}}, compiled::Choices{});
  const at::Tensor loss = plan->forward(batch_of(at::randn({5, 6})), training).sum();
  REQUIRE_THROWS_WITH(loss.backward({}, true, true), Catch::Contains("gradients of gradients"));
  const at::Tensor again = plan->forward(batch_of(at::randn({5, 6})), training).sum();
  again.backward({}, true);
  REQUIRE_THROWS_WITH(again.backward(), Catch::Contains("backward twice"));
}

TEST_CASE("Buffers that are used at the same time lie apart", "[compiled]") {
  std::mt19937_64 random(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<compiled::Buffer> buffers;
    for (int i = 0; i < 40; ++i) {
      buffers.emplace_back(1 + random() % 1000, false);
      const int first = static_cast<int>(random() % 50);
      buffers.back().use(first);
      buffers.back().use(first + static_cast<int>(random() % 12));
    }
    std::vector<std::size_t> offsets;
    const std::size_t size = compiled::lay_out(buffers, offsets);
    std::size_t sum = 0;
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      sum += buffers[i].bytes();
      REQUIRE(offsets[i] + buffers[i].bytes() <= size);
      for (std::size_t j = 0; j < i; ++j) {
        const bool together =
            buffers[i].first() <= buffers[j].last() && buffers[j].first() <= buffers[i].last();
        const bool overlap =
            offsets[i] < offsets[j] + buffers[j].bytes() && offsets[j] < offsets[i] + buffers[i].bytes();
        REQUIRE_FALSE((together && overlap));
      }
    }
    REQUIRE(size < sum);
  }
}

}  // namespace
