// Structure checks, shape inference messages, costs and the executor.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <catch2/catch.hpp>

#include <trainyard/error.hpp>
#include <trainyard/graph/builder.hpp>
#include <trainyard/graph/network.hpp>

namespace test_graph_tests {

using namespace trainyard;

namespace {

using Ints = std::vector<std::int64_t>;
using Catch::Matchers::Contains;

BatchSchema images(Ints shape = {3, 8, 8}) {
  BatchSchema schema;
  schema.inputs = {{"image", std::move(shape)}};
  schema.classes = 10;
  return schema;
}

Batch batch_of(at::Tensor x) {
  Batch batch;
  batch.inputs = {std::move(x)};
  return batch;
}

const GraphValue& value(const Graph& g, const char* name) {
  const ValueId id = g.find_value(name);
  REQUIRE(id != no_value);
  return g.values[static_cast<std::size_t>(id)];
}

/// Scales by 2 and records what it was asked.
class Doubling final : public Dropout {
 public:
  struct Call {
    std::size_t site;
    std::uint64_t bits;
  };
  void open(const DropoutPlaces&) override {}
  at::Tensor apply(const at::Tensor& x, std::size_t site, const DropoutCall& call) override {
    calls.push_back({site, call.random.bits(0)});
    return x * 2;
  }
  std::vector<Call> calls;
};

}  // namespace

TEST_CASE("shape errors name the node, what it got and what it needs", "[graph]") {
  GraphBuilder b(images(), 0);
  const ValueId x = b.input(), flat = b.flatten(x);
  CHECK_THROWS_WITH(b.linear(b.constant("v", at::ones({5})), "fc", 4),
                    Contains("node \"fc\" (Gemm)") && Contains("[5]"));
  CHECK_THROWS_WITH(b.conv2d(flat, "conv", 4, {}),
                    Contains("node \"conv\" (Conv)") && Contains("[batch, 192]"));
  CHECK_THROWS_WITH(b.conv2d(x, "big", 4, {.kernel = 9}), Contains("node \"big\" (Conv)") &&
                                                              Contains("[batch, 3, 8, 8]") &&
                                                              Contains("window of 9"));
  CHECK_THROWS_WITH(b.conv2d(x, "grouped", 4, {.groups = 2}), Contains("group = 2 does not divide 3"));
  const ValueId whole = b.constant("whole", at::ones({4, 5}, at::kLong));
  CHECK_THROWS_WITH(b.node("Gemm", "g", {whole, b.constant("half", at::ones({5, 2}, at::kLong))}),
                    Contains("node \"g\" (Gemm)") && Contains("floating"));
  CHECK_THROWS_WITH(b.node("Split", "s", {flat, b.constant("parts", at::tensor({1, 2}, at::kLong))},
                           {{"axis", std::int64_t{1}}}),
                    Contains("parts [1, 2] do not add up to axis 1 of [batch, 192]"));
  CHECK_THROWS_WITH(b.add(x, flat),
                    Contains("(Add)") && Contains("[batch, 3, 8, 8]") && Contains("[batch, 192]"));
  CHECK_THROWS_WITH(b.reshape(flat, {-1, 5}), Contains("[batch, 192] to [-1, 5]"));
  CHECK_THROWS_WITH(b.reshape(flat, {4, 48}), Contains("number of elements differs"));
  CHECK_THROWS_WITH(b.node("gemm", "g", {flat}), Contains("unknown operator; did you mean Gemm?"));
  CHECK_THROWS_WITH(b.node("Relu", "r", {flat, flat}), Contains("has 2 inputs, takes 1"));
  CHECK_THROWS_WITH(b.node("Relu", "r", {flat}, {{"alpha", 1.0}}),
                    Contains("does not take attribute `alpha`"));
  CHECK_THROWS_WITH(b.node("Softmax", "s", {flat}, {{"axis", 1.0}}),
                    Contains("attribute `axis` is a number, expected an integer"));
  CHECK_THROWS_WITH(b.softmax(flat, 2), Contains("axis 2 is outside of 2 dimensions"));
  CHECK_THROWS_WITH(b.tied_linear(flat, "t", b.constant("w", at::ones({4, 7}))), Contains("[4, 7]"));
  CHECK_THROWS_WITH(b.finish(b.reshape(flat, {-1})),
                    Contains("[batch*192]") && Contains("needs the batch first"));
}

TEST_CASE("structure errors", "[graph]") {
  GraphBuilder b(images(), 0);
  const Graph good = b.finish(b.linear(b.relu(b.flatten(b.input())), "fc", 10));

  Graph g = good;
  std::swap(g.nodes[0], g.nodes[1]);
  CHECK_THROWS_WITH(g.infer_shapes(), Contains("before it is produced"));
  g = good;
  g.nodes[1].name = g.nodes[0].name;
  CHECK_THROWS_WITH(g.infer_shapes(), Contains("repeats the name of another node"));
  g = good;
  g.values[1].name = g.values[0].name;
  CHECK_THROWS_WITH(g.infer_shapes(), Contains("repeats the name"));
  g = good;
  g.nodes[1].outputs = g.nodes[0].outputs;
  CHECK_THROWS_WITH(g.infer_shapes(), Contains("has a producer already"));
  g = good;
  for (const ValueId id : {ValueId{99}, static_cast<ValueId>(good.values.size())}) {
    g.outputs = {id};
    CHECK_THROWS_WITH(g.infer_shapes(), Contains("value id " + std::to_string(id)));
  }
  g = good;
  g.outputs = {};
  CHECK_THROWS_WITH(GraphNetwork(g), Contains("0 outputs"));
  GraphBuilder twice(images(), 0);
  const ValueId flat = twice.flatten(twice.input());
  twice.linear(flat, "fc", 10);
  CHECK_THROWS_WITH(twice.finish(twice.linear(flat, "fc", 10)), Contains("repeats the name \"fc.weight\""));
}

TEST_CASE("rows of batch x time keep their number", "[graph]") {
  BatchSchema schema;
  schema.inputs = {{"x", {6, 4}}};
  GraphBuilder b(schema, 0);
  const ValueId rows = b.flatten(b.input(), 2);
  CHECK(b.shape(rows) == Ints{-6, 4});
  const ValueId y = b.reshape(b.linear(rows, "fc", 2), {-1, 6, 2});
  const Graph g = b.finish(y);
  CHECK(g.values[static_cast<std::size_t>(y)].shape == Ints{batch_dim, 6, 2});
  CHECK(cost(g, g.nodes[1]).multiply_adds == 6L * 4 * 2);
}

TEST_CASE("costs of one sample", "[graph]") {
  GraphBuilder b(images(), 0);
  ValueId x = b.conv2d(b.input(), "conv", 16, {.padding = 1});
  x = b.batch_norm(x, "bn");
  x = b.linear(b.flatten(b.global_average_pool(b.relu(x))), "fc", 10);
  const Graph g = b.finish(x);
  const auto of = [&](const char* name) {
    for (const Node& node : g.nodes)
      if (node.name == name) return cost(g, node);
    FAIL(name);
    return NodeCost{};
  };
  CHECK(of("conv").parameters == 16 * 27 + 16);
  CHECK(of("conv").multiply_adds == 16L * 27 * 64);
  CHECK(of("bn").parameters == 32);
  CHECK(of("bn").multiply_adds == 0);
  CHECK(of("fc").parameters == 170);
  CHECK(of("fc").multiply_adds == 160);
}

TEST_CASE("a shared parameter counts once", "[graph]") {
  BatchSchema schema;
  schema.inputs = {{"tokens", {4}, at::kLong}};
  GraphBuilder b(schema, 0);
  const auto e = b.embedding(b.input(), "wte", 11, 3);
  const Graph g = b.finish(b.reshape(b.tied_linear(b.flatten(e.output, 2), "head", e.weight), {-1, 4, 11}));
  std::int64_t parameters = 0;
  for (const Node& node : g.nodes) parameters += cost(g, node).parameters;
  CHECK(parameters == 33);
  GraphNetwork network(g);
  CHECK(network.parameters().size() == 1);
  CHECK(network.output_shape() == Ints{4, 11});
}

TEST_CASE("initial values have PyTorch's distributions, keyed by seed and name", "[graph]") {
  const auto build = [](std::uint64_t seed) {
    BatchSchema schema;
    schema.inputs = {{"x", {3, 16, 16}}, {"tokens", {4}, at::kLong}};
    GraphBuilder b(schema, seed);
    b.embedding(b.input(1), "embedding", 500, 40);
    b.linear(b.flatten(b.input()), "fc", 64);
    b.linear(b.flatten(b.input()), "normal", 64, true, 0.02);
    return b.finish(b.conv2d(b.input(), "conv", 64, {.kernel = 5}));
  };
  const Graph g = build(1), same = build(1), other = build(2);
  const auto tensor = [](const Graph& graph, const char* name) { return value(graph, name).initializer; };
  const auto uniform = [&](const char* name, double bound) {
    const at::Tensor t = tensor(g, name).to(at::kDouble);
    CHECK(t.abs().max().item<double>() <= bound);
    CHECK(t.abs().max().item<double>() > 0.9 * bound);
    CHECK(t.var().item<double>() == Approx(bound * bound / 3).epsilon(t.numel() > 1000 ? 0.1 : 0.6));
  };
  uniform("fc.weight", 1 / std::sqrt(768.0));
  uniform("fc.bias", 1 / std::sqrt(768.0));
  uniform("conv.weight", 1 / std::sqrt(75.0));
  uniform("conv.bias", 1 / std::sqrt(75.0));
  CHECK(tensor(g, "embedding.weight").std().item<double>() == Approx(1.0).epsilon(0.03));
  CHECK(tensor(g, "normal.weight").std().item<double>() == Approx(0.02).epsilon(0.03));
  CHECK(at::equal(tensor(g, "normal.bias"), at::zeros({64})));
  CHECK(at::equal(tensor(g, "fc.weight"), tensor(same, "fc.weight")));
  CHECK_FALSE(at::equal(tensor(g, "fc.weight"), tensor(other, "fc.weight")));
  CHECK_FALSE(at::equal(tensor(g, "fc.bias").slice(0, 0, 10), tensor(g, "conv.bias").slice(0, 0, 10)));
}

TEST_CASE("parameters and buffers keep their handles", "[graph]") {
  GraphBuilder b(images(), 0);
  GraphNetwork network(b.finish(b.batch_norm(b.conv2d(b.input(), "conv", 4, {}), "bn")));
  std::vector<std::string> names, buffers;
  const auto parameters = network.parameters();
  for (const NamedTensor& p : parameters) {
    names.push_back(p.name);
    CHECK(p.tensor.is_leaf());
    CHECK(p.tensor.requires_grad());
  }
  for (const NamedTensor& p : network.buffers()) {
    buffers.push_back(p.name);
    CHECK_FALSE(p.tensor.requires_grad());
  }
  CHECK(names == std::vector<std::string>{"conv.weight", "conv.bias", "bn.weight", "bn.bias"});
  CHECK(buffers == std::vector<std::string>{"bn.running_mean", "bn.running_var"});
  network.to(at::kCPU);
  CHECK(network.parameters()[0].tensor.is_same(parameters[0].tensor));
  CHECK(value(*network.graph(), "conv.weight").initializer.is_same(parameters[0].tensor));

  const at::Tensor mean = network.buffers()[0].tensor;
  network.forward(batch_of(at::randn({4, 3, 8, 8}) + 1), {.training = false});
  CHECK(at::equal(mean, at::zeros({4})));
  network.forward(batch_of(at::randn({4, 3, 8, 8}) + 1), {.training = true});
  CHECK_FALSE(at::equal(mean, at::zeros({4})));
}

TEST_CASE("dropout sites are served in training only, keyed by seed, site, step and micro-batch", "[graph]") {
  GraphBuilder b(images({6}), 0);
  const ValueId x = b.dropout(b.input(), "first");
  GraphNetwork network(b.finish(b.dropout(b.relu(x), "second")));
  const auto sites = network.dropout_places().sites;
  REQUIRE(sites.size() == 2);
  CHECK(sites[0].id == "first");
  CHECK(sites[1].axis == 1);
  CHECK(sites[1].width == 6);

  const Batch batch = batch_of(at::ones({2, 6}));
  CHECK(at::equal(network.forward(batch, {.training = true}), batch.inputs[0]));  // nobody serves them
  Doubling dropout;
  const DropoutPlan plan(dropout, network.dropout_places(), {});
  network.set_dropout(&plan, 5);
  CHECK(at::equal(network.forward(batch, {.training = false}), batch.inputs[0]));
  CHECK(dropout.calls.empty());
  CHECK(at::equal(network.forward(batch, {.training = true, .step = 3, .micro = 1}), batch.inputs[0] * 4));
  REQUIRE(dropout.calls.size() == 2);
  CHECK(dropout.calls[0].site == 0);
  CHECK(dropout.calls[0].bits == RandomStream(5, "dropout/first", 3, 1).bits(0));
  CHECK(dropout.calls[1].site == 1);
  CHECK(dropout.calls[1].bits == RandomStream(5, "dropout/second", 3, 1).bits(0));
  network.set_dropout(nullptr, 0);
  CHECK(at::equal(network.forward(batch, {.training = true}), batch.inputs[0]));
}

TEST_CASE("several taps look on at once, in the order in which they came", "[graph]") {
  GraphBuilder b(images({6}), 0);
  GraphNetwork network(b.finish(b.relu(b.linear(b.input(), "fc", 2))));
  const Batch batch = batch_of(at::ones({3, 6}));
  using Calls = std::vector<std::string>;
  Calls calls;
  const auto tap = [&](const std::string& name) {
    return [&calls, name](const NodeActivity& activity) {
      CHECK(activity.outputs[0].size(0) == 3);
      calls.push_back(name + " " + std::string(activity.node));
    };
  };
  const auto pass = [&] {
    calls.clear();
    network.forward(batch, {});
    return calls;
  };
  int recorder = 0, executor = 0;  // their addresses
  REQUIRE(network.add_tap(&recorder, tap("recorder")));
  REQUIRE(network.add_tap(&executor, tap("executor")));
  CHECK(pass() == Calls{"recorder fc", "executor fc", "recorder relu1", "executor relu1"});
  REQUIRE(network.add_tap(&recorder, tap("other")));  // in the place of its first
  CHECK(pass() == Calls{"other fc", "executor fc", "other relu1", "executor relu1"});
  network.remove_tap(&recorder);
  network.remove_tap(&recorder);
  CHECK(pass() == Calls{"executor fc", "executor relu1"});
  REQUIRE(network.add_tap(&recorder, tap("recorder")));
  CHECK(pass() == Calls{"executor fc", "recorder fc", "executor relu1", "recorder relu1"});

  network.add_tap(&executor, [](const NodeActivity&) { throw std::runtime_error("no more"); });
  CHECK_THROWS_WITH(pass(), "no more");
  CHECK(calls.empty());
  network.remove_tap(&executor);
  CHECK(pass() == Calls{"recorder fc", "recorder relu1"});
}

TEST_CASE("a batch that does not fit is refused, and the network still works", "[graph]") {
  GraphBuilder b(images({6}), 0);
  GraphNetwork network(b.finish(b.linear(b.input(), "fc", 2)));
  CHECK_THROWS_WITH(network.forward(batch_of(at::ones({2, 7})), {}),
                    Contains("input \"image\" has shape [2, 7], the graph takes [batch, 6]"));
  CHECK_THROWS_WITH(network.forward(Batch{}, {}), Contains("0 inputs"));
  CHECK_THROWS_WITH(network.forward(batch_of(at::ones({2, 6}, at::kDouble)), {}), Contains("holds Double"));
  for (const std::int64_t size : {1, 5})
    CHECK(network.forward(batch_of(at::ones({size, 6})), {}).size(0) == size);
}

TEST_CASE("activations are let go after their last use", "[graph]") {
  GraphBuilder b(images({6}), 0);
  ValueId x = b.input();
  for (int i = 0; i < 3; ++i) x = b.relu(x);
  GraphNetwork network(b.finish(x));
  c10::NoGradGuard no_grad;
  const at::Tensor input = at::ones({2, 6});
  Batch batch = batch_of(input);
  const at::Tensor y = network.forward(batch, {});
  CHECK(y.use_count() == 1);
  CHECK(input.use_count() == 2);  // `input` and the batch
}

}  // namespace test_graph_tests
