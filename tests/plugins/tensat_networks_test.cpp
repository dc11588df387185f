// tensat: graphs of networks as terms and back, against LibTorch's own pass of the network, in doubles; merged weights; what is kept of a choice.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <thread>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <catch2/catch.hpp>

#include <trainyard/error.hpp>
#include <trainyard/graph/builder.hpp>
#include <trainyard/graph/network.hpp>
#include <trainyard/mixins/reads_run_file.hpp>
#include <trainyard/testing/host.hpp>
#include <trainyard/testing/run.hpp>
#include <trainyard/transform.hpp>

#include "plugins/transform/tensat/network_rules.hpp"
#include "plugins/transform/tensat/run_facts.hpp"
#include "plugins/transform/tensat/saved_plan.hpp"
#include "plugins/transform/tensat/search.hpp"
#include "plugins/transform/tensat/weights.hpp"
#include "tests/support/plugin.hpp"

namespace tensat_networks_test {

using namespace tensat;
using namespace trainyard;
using Catch::Contains;

namespace {

BatchSchema schema_of(std::vector<std::int64_t> shape) {
  BatchSchema schema = testing::tiny_schema();
  schema.inputs[0].shape = std::move(shape);
  return schema;
}

/// Layers of one input, some with an activation, whose sums and products are joined.
Graph gates(int count = 4, bool bias = true) {
  GraphBuilder b(schema_of({12}), 3);
  std::vector<ValueId> all;
  for (int i = 0; i < count; ++i) {
    const ValueId y = b.linear(b.input(), "gate" + std::to_string(i), 8 + (i % 2) * 0, bias);
    all.push_back(i % 3 == 0 ? b.tanh(y) : i % 3 == 1 ? b.sigmoid(y) : b.relu(y));
  }
  ValueId sum = all[0];
  for (int i = 1; i < count; ++i)
    sum = i % 2 == 0 ? b.add(sum, all[static_cast<std::size_t>(i)])
                     : b.mul(sum, all[static_cast<std::size_t>(i)]);
  return b.finish(b.linear(sum, "out", 3));
}

/// Convolutions of one image, of kernels of two sizes, one depthwise; poolings; normalisation.
Graph images() {
  GraphBuilder b(schema_of({6, 8, 8}), 5);
  const ValueId x = b.input();
  const ValueId a = b.relu(b.conv2d(x, "a", 4, {.kernel = 3, .padding = 1}));
  const ValueId c = b.relu(b.conv2d(x, "c", 5, {.kernel = 3, .padding = 1}));
  const ValueId e = b.conv2d(x, "e", 3, {.kernel = 1, .bias = false});
  const ValueId d = b.conv2d(x, "d", 6, {.kernel = 3, .padding = 1, .groups = 6});
  const ValueId p = b.max_pool2d(x, 3, 1, 1);
  ValueId y = b.batch_norm(b.concat({a, c, e, d, p}, 1), "norm");
  y = b.average_pool2d(b.relu(y), 2, 2);
  return b.finish(b.linear(b.flatten(y), "out", 3));
}

/// Attention with its three products, tokens, layer normalisation, a dropout.
Graph attention() {
  GraphBuilder b(schema_of({5, 8}), 7);
  ValueId x = b.layer_norm(b.input(), "norm");
  const ValueId q = b.linear(x, "q", 8), k = b.linear(x, "k", 8), v = b.linear(x, "v", 8);
  x = b.add(b.input(), b.dropout(b.linear(b.attention(q, k, v, "attention", 2, true), "o", 8), "drop"));
  const std::vector<ValueId> parts = b.split(x, 2, 2);
  return b.finish(b.linear(b.flatten(b.mul(parts[0], parts[1])), "out", 3));
}

Graph recurrent() {
  GraphBuilder b(schema_of({5, 8}), 7);
  return b.finish(b.linear(b.flatten(b.lstm(b.input(), "rnn", 6)), "out", 3));
}

std::vector<Graph> all_graphs() {
  std::vector<Graph> all;
  all.push_back(gates());
  all.push_back(gates(5, false));
  all.push_back(images());
  all.push_back(attention());
  all.push_back(recurrent());
  return all;
}

std::vector<std::string> parameters_of(const Graph& graph) {
  std::vector<std::string> names;
  for (const GraphValue& value : graph.values)
    if (value.trainable) names.push_back(value.name);
  return names;
}

std::vector<std::string> nodes_of(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes) names.push_back(node.name);
  return names;
}

std::size_t count(const Graph& graph, std::string_view op) {
  return static_cast<std::size_t>(std::ranges::count(graph.nodes, op, &Node::op));
}

/// The program that a choice by costs is: after so many iterations of all rules, or after those that merge.
Program chosen(Terms& terms, const std::function<double(const EGraph&, NodeId)>& cost, int iterations = 0) {
  merge_groups(terms);
  const bool few = iterations == 0;
  // The integer program sees what several share, and gets through what few rules make.
  const std::vector<tensat::Rule> rules =
      few ? merging_rules(terms.egraph(), terms.shapes()) : all_rules(terms.egraph(), terms.shapes());
  saturate(
      terms.egraph(), rules, terms.roots(),
      {.nodes = 3000, .iterations = few ? 10 : iterations, .seconds = 20.0, .resting = 500, .reached = {}},
      CycleFilter::efficient);
  ban_cuts_of_batches(terms);
  std::vector<double> costs(terms.egraph().nodes_made());
  for (NodeId node = 0; node < terms.egraph().nodes_made(); ++node) costs[node] = cost(terms.egraph(), node);
  const Extractable extractable = problem_of(terms.egraph(), terms.roots(), costs);
  at::set_num_threads(1);  // the solver's process has no others
  return terms.program(extractable, extract(extractable.problem, few ? Extractor::ilp : Extractor::greedy_dag,
                                            {.seconds = 20.0}, &extractable.input)
                                        .best);
}

bool is_product(const EGraph& graph, NodeId node) {
  const std::string& op = graph.symbols.name(graph.op(node));
  return op == "matmul" || op == "conv2d";
}

/// Products are dear, all else is nearly for nothing.
double by_products(const EGraph& graph, NodeId node) {
  return is_product(graph, node) ? 1.0 : graph.children(node).empty() ? 0.0 : 0.001;
}

Table run_file() {
  Table executor, train, data, run;
  executor.set("type", "eager");
  train.set("micro_batch_size", 16);
  data.set("train", train);
  run.set("executor", executor);
  run.set("data", data);
  return run;
}

/// A folder that stands for that of the machine.
class OwnCache {
 public:
  OwnCache() {
    char name[] = "/tmp/tensat-test-XXXXXX";
    folder = ::mkdtemp(name);
    if (const char* const value = std::getenv("XDG_CACHE_HOME")) before_ = value;
    ::setenv("XDG_CACHE_HOME", folder.c_str(), 1);
  }
  ~OwnCache() {
    before_.empty() ? ::unsetenv("XDG_CACHE_HOME") : ::setenv("XDG_CACHE_HOME", before_.c_str(), 1);
    std::filesystem::remove_all(folder);
  }
  std::string folder;

 private:
  std::string before_;
};

}  // namespace

TEST_CASE("tensat takes a graph and gives it back as it was") {
  for (const Graph& graph : all_graphs()) {
    Terms terms(graph);
    const std::vector<double> costs(terms.egraph().nodes_made(), 1.0);
    const Extractable extractable = problem_of(terms.egraph(), terms.roots(), costs);
    const Program program = terms.program(extractable, *verified(extractable.problem, extractable.input));
    const Graph made = graph_of(graph, program);
    CHECK(difference(graph, made, 7, 1, true) < 1e-13);
    CHECK(parameters_of(made) == parameters_of(graph));
    // Nodes keep their names; views that are equal are one.
    for (const Node& node : graph.nodes)
      if (node.op != "Reshape" && node.op != "Flatten" && node.op != "Split")
        CHECK_THAT(nodes_of(made), Catch::VectorContains(node.name));
    CHECK(made.nodes.size() <= graph.nodes.size());
    CHECK(graph_of(graph, program).nodes.size() == made.nodes.size());
    CHECK(hash_of(graph_of(graph, program)) == hash_of(made));
  }
}

TEST_CASE("tensat says which nodes no rule knows, and why none is refused") {
  CHECK(Terms(gates()).opaque().empty());
  const std::vector<std::string> in_attention = Terms(attention()).opaque();
  CHECK_THAT(in_attention, Catch::VectorContains(std::string("attention (Attention)")));
  CHECK_THAT(in_attention, Catch::VectorContains(std::string("drop (Dropout)")));
  CHECK_THAT(Terms(recurrent()).opaque(), Catch::VectorContains(std::string("rnn (LSTM)")));
}

TEST_CASE("tensat merges products of one input, biases and activations with them") {
  for (const bool bias : {true, false}) {
    const Graph graph = gates(4, bias);
    Terms terms(graph);
    const Graph made = graph_of(graph, chosen(terms, by_products));
    CHECK(count(made, "Gemm") + count(made, "MatMul") == 2);
    CHECK(count(made, "Split") + count(made, "Slice") >= 1);
    for (const std::int64_t samples : {1, 5, 12, 16})
      CHECK(difference(graph, made, samples, 3, true) < 1e-12);
  }
  const Graph graph = images();
  Terms terms(graph);
  const Graph made = graph_of(graph, chosen(terms, by_products));
  CHECK(count(graph, "Conv") == 4);
  CHECK(count(made, "Conv") <= 3);  // the depthwise one is left as it is
  for (const std::int64_t samples : {1, 6, 8}) CHECK(difference(graph, made, samples, 3, true) < 1e-12);
}

TEST_CASE("tensat merges products of attention behind one view") {
  const Graph graph = attention();
  Terms terms(graph);
  const Graph made = graph_of(graph, chosen(terms, by_products));
  CHECK(count(made, "Gemm") == count(graph, "Gemm") - 2);
  for (const std::int64_t samples : {1, 3, 8}) CHECK(difference(graph, made, samples, 3, true) < 1e-12);
}

TEST_CASE("graphs that costs of chance choose give what the network gives, 100 seeds") {
  const std::vector<Graph> graphs = all_graphs();
  double most = 0.0;
  std::size_t others = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const Graph& graph = graphs[seed % 4];
    Terms terms(graph);
    std::mt19937_64 random(seed);
    const Graph made = graph_of(
        graph,
        chosen(
            terms, [&](const EGraph&, NodeId) { return static_cast<double>(random() % 1000 + 1); }, 4));
    others += hash_of(made) != hash_of(graph);
    const std::int64_t samples = static_cast<std::int64_t>(seed % 9) + 1;
    CHECK(difference(graph, made, samples, seed, true) < 1e-11);
    most = std::max(most, difference(graph, made, samples, seed, false));
    CHECK(parameters_of(made) == parameters_of(graph));
  }
  CHECK(most < 1e-5);
  CHECK(others > 60);
}

TEST_CASE(
    "tensat multiplies weights by a number in place of what they make, and joins groups that are narrow") {
  GraphBuilder b(schema_of({8, 6, 6}), 5);
  const ValueId half = b.constant("half", at::full({}, 0.5));
  const ValueId a = b.mul(b.conv2d(b.input(), "a", 12, {.kernel = 3, .padding = 1, .groups = 4}), half);
  const Graph graph = b.finish(b.linear(b.flatten(b.relu(a)), "out", 3));
  Terms terms(graph);
  EGraph& e = terms.egraph();
  const auto named = [&](NodeId node, const char* op) { return e.symbols.name(e.op(node)) == op; };
  saturate(e, all_rules(e, terms.shapes()), terms.roots(), {.nodes = 3000, .iterations = 4, .reached = {}},
           CycleFilter::efficient);
  const auto choose = [&](const std::function<double(NodeId)>& cost) {
    std::vector<double> costs;
    for (NodeId node = 0; node < e.nodes_made(); ++node) costs.push_back(cost(node));
    const Extractable extractable = problem_of(e, terms.roots(), costs);
    return graph_of(
        graph,
        terms.program(extractable,
                      extract(extractable.problem, Extractor::greedy_dag, {}, &extractable.input).best));
  };
  // By what a product with a number costs for its result.
  const Graph scaled = choose([&](NodeId node) {
    if (!named(node, "smul")) return 0.01;
    return terms.shapes().of(e, e.class_of(node)).weights ? 0.1 : 1.0;
  });
  // By a price of convolutions of four groups.
  const Graph joined = choose([&](NodeId node) {
    return named(node, "conv2d") && !named(node, "merge") &&
                   terms.shapes().of(e, e.children(node)[5]).shape[1] == 2
               ? 1.0
               : 0.01;
  });
  for (const Graph& made : {scaled, joined}) {
    CHECK(hash_of(made) != hash_of(graph));
    CHECK(parameters_of(made) == parameters_of(graph));
    for (const std::int64_t samples : {1, 3, 8}) CHECK(difference(graph, made, samples, 3, true) < 1e-12);
  }
  const auto groups = [](const Graph& of) {
    return std::ranges::find(of.nodes, "Conv", &Node::op)->integer("group", 1);
  };
  CHECK(groups(graph) == 4);
  CHECK(groups(scaled) == 4);
  CHECK(groups(joined) < 4);
  // No buffer more: what checkpoints have is the same.
  CHECK(GraphNetwork(Graph(joined)).buffers().size() == GraphNetwork(Graph(graph)).buffers().size());
}

TEST_CASE("gradients of merged weights are those of the weights") {
  const Graph graph = gates();
  Terms terms(graph);
  Graph made = graph_of(graph, chosen(terms, by_products));
  Graph copy = graph;
  for (Graph* const each : {&copy, &made})
    for (GraphValue& value : each->values)
      if (value.initializer.defined()) value.initializer = value.initializer.detach().clone();
  CHECK(lay_behind_each_other(made) == 8);
  GraphNetwork one(std::move(copy)), other(std::move(made));
  const at::Tensor x = at::randn({9, 12});
  std::vector<std::vector<at::Tensor>> gradients;
  for (GraphNetwork* const each : {&one, &other}) {
    std::vector<at::Tensor> to;
    for (const NamedTensor& parameter : each->parameters()) to.push_back(parameter.tensor);
    gradients.push_back(torch::autograd::grad(
        {each->forward_all({x}, {.training = true, .part = {}})[0].square().sum()}, to));
  }
  for (std::size_t i = 0; i < gradients[0].size(); ++i) {
    INFO(one.parameters()[i].name);
    CHECK(at::allclose(gradients[0][i], gradients[1][i], 1e-4, 1e-5));
  }
}

TEST_CASE("weights that lie behind each other are joined without a copy, others with one") {
  GraphBuilder b(schema_of({4}), 1);
  const ValueId v = b.uniform_parameter("v", {2, 4}, 1.0), w = b.uniform_parameter("w", {3, 4}, 1.0);
  Graph graph =
      b.finish(b.node("Gemm", "merged", {b.input(), b.concat({v, w}, 0)}, {{"transB", std::int64_t{1}}}));
  const at::Tensor expected = at::cat({graph.values[static_cast<std::size_t>(v)].initializer,
                                       graph.values[static_cast<std::size_t>(w)].initializer});
  const auto of = [&](GraphNetwork& network) {
    for (std::size_t i = 0; i < network.graph()->nodes.size(); ++i)
      if (network.graph()->nodes[i].op == "Concat")
        return network.run_node(
            i, std::vector<at::Tensor>{network.parameters()[0].tensor, network.parameters()[1].tensor},
            {})[0];
    return at::Tensor();
  };
  GraphNetwork apart{Graph(graph)};
  CHECK(of(apart).equal(expected));
  CHECK_FALSE(of(apart).is_alias_of(apart.parameters()[0].tensor));
  CHECK(lay_behind_each_other(graph) == 2);
  GraphNetwork network(std::move(graph));
  const at::Tensor whole = of(network);
  CHECK(whole.equal(expected));
  CHECK(whole.is_alias_of(network.parameters()[0].tensor));
  {
    const at::NoGradGuard guard;
    network.parameters()[1].tensor.add_(1.0);
  }
  CHECK(of(network).narrow(0, 2, 3).equal(expected.narrow(0, 2, 3) + 1.0));
  CHECK(of(network).narrow(0, 0, 2).equal(expected.narrow(0, 0, 2)));
  // The other way round they lie behind each other no more.
  network.parameters()[0].tensor.set_data(network.parameters()[0].tensor.clone());
  CHECK_FALSE(of(network).is_alias_of(network.parameters()[1].tensor));
  CHECK(lay_behind_each_other(network) == 2);
  CHECK(of(network).is_alias_of(network.parameters()[1].tensor));
}

TEST_CASE("a parameter that several nodes join lies where the first has it") {
  GraphBuilder b(schema_of({4}), 1);
  const ValueId u = b.uniform_parameter("u", {2, 4}, 1.0), v = b.uniform_parameter("v", {3, 4}, 1.0),
                w = b.uniform_parameter("w", {1, 4}, 1.0);
  const auto product = [&](const char* name, std::vector<ValueId> parts) {
    return b.node("Gemm", name, {b.input(), b.concat(parts, 0)}, {{"transB", std::int64_t{1}}});
  };
  const Graph plain =
      b.finish(b.concat({product("first", {u, v}), product("second", {v, w}), product("twice", {w, w})}, 1));
  for (const bool in_use : {false, true}) {
    Graph graph = plain;
    for (GraphValue& value : graph.values)
      if (value.initializer.defined()) value.initializer = value.initializer.detach().clone();
    if (!in_use) CHECK(lay_behind_each_other(graph) == 2);
    GraphNetwork network(std::move(graph));
    if (in_use) CHECK(lay_behind_each_other(network) == 2);
    std::map<std::string, at::Tensor> parameters;
    for (const NamedTensor& each : network.parameters()) parameters.emplace(each.name, each.tensor);
    int joined = 0;
    for (std::size_t i = 0; i < plain.nodes.size(); ++i) {
      if (plain.nodes[i].op != "Concat" || plain.nodes[i].integer("axis", 0) != 0) continue;
      std::vector<at::Tensor> inputs;
      for (const ValueId id : plain.nodes[i].inputs)
        inputs.push_back(parameters.at(plain.values[static_cast<std::size_t>(id)].name));
      const at::Tensor whole = network.run_node(i, inputs, {})[0];
      CHECK(whole.equal(at::cat(inputs)));
      CHECK(whole.is_alias_of(inputs[0]) == (joined == 0));
      ++joined;
    }
    CHECK(joined == 3);
    const at::Tensor x = at::randn({5, 4});
    CHECK(network.forward_all({x}, {.training = false, .part = {}})[0].equal(
        GraphNetwork(Graph(plain)).forward_all({x}, {.training = false, .part = {}})[0]));
  }
}

TEST_CASE("a program that cuts between samples, or uses what is not there, is refused") {
  const Graph graph = gates();
  const std::string x = std::to_string(any_batch);
  Program program;
  const auto add = [&](std::string op, std::vector<std::int32_t> children = {}) {
    program.terms.push_back({std::move(op), std::move(children), {}, {}});
    return static_cast<std::int32_t>(program.terms.size() - 1);
  };
  const std::string name = graph.values[static_cast<std::size_t>(graph.inputs[0])].name;
  const std::int32_t input = add("input", {add(name + "@" + x + "_12")});
  const std::int32_t zero = add("0"), both = add("concat", {zero, input, input});
  program.outputs = {add("head", {zero, both, input, zero})};
  CHECK_THROWS_WITH(graph_of(graph, program), Contains("cut between its samples"));
  program.outputs = {add("relu", {add("weight", {add("nobody@3_4")})})};
  CHECK_THROWS_WITH(graph_of(graph, program), Contains("no input or weight \"nobody\""));
  program.outputs = {add("node gone@" + x + "_3", {input})};
  CHECK_THROWS_WITH(graph_of(graph, program), Contains("no node \"gone\""));
  program.outputs = {99};
  CHECK_THROWS_WITH(graph_of(graph, program), Contains("an output is no term"));
  Terms terms(graph);
  merge_groups(terms);
  const ClassId one = terms.roots()[0];
  const ClassId numbers = terms.egraph().add(terms.egraph().symbols.of("0"), {});
  const ClassId pair[] = {numbers, one, one};
  const ClassId joined = terms.egraph().add(terms.egraph().symbols.of("concat"), pair);
  const ClassId cut[] = {numbers, joined, one, numbers};
  terms.egraph().add(terms.egraph().symbols.of("head"), cut);
  terms.egraph().rebuild();
  CHECK(ban_cuts_of_batches(terms) == 1);
}

TEST_CASE("rules of networks hold for tensors of chance, in doubles") {
  const std::map<std::string,
                 std::function<at::Tensor(const std::vector<at::Tensor>&, const std::vector<std::int64_t>&)>>
      unary;
  std::mt19937_64 random(1);
  std::size_t checked = 0;
  for (const TensorRule& rule : network_rules()) {
    std::size_t met = 0;
    for (int round = 0; round < 4000 && met < 20; ++round) {
      // Variables are numbers, matrices of two sizes, or vectors; what shapes refuse is left out.
      Shapes shapes;
      EGraph graph(&shapes);
      const tensat::Rule parsed = parse_rule(rule.name, rule.text, graph.symbols);
      std::vector<ClassId> classes;
      std::vector<std::pair<std::int64_t, at::Tensor>> values;
      for (const std::string& variable : parsed.variables) {
        const bool number = variable == "?i" || variable == "?k" || variable == "?l";
        if (number) {
          const std::int64_t n = static_cast<std::int64_t>(random() % 2);
          classes.push_back(graph.add(graph.symbols.of(std::to_string(n)), {}));
          values.emplace_back(n, at::Tensor());
          continue;
        }
        const bool vector = variable == "?b" && rule.text.find("bias") != std::string_view::npos;
        std::vector<std::int64_t> sizes = {static_cast<std::int64_t>(random() % 3) + 1,
                                           static_cast<std::int64_t>(random() % 3) + 1};
        if (vector || variable == "?c") sizes.resize(1);
        if (variable == "?m" || variable == "?n") sizes = {4, 4};
        if (variable == "?z") sizes = {1};
        const at::Tensor tensor = at::randn(sizes, at::kDouble);
        std::string leaf = variable + "@" + std::to_string(sizes[0]);
        for (std::size_t i = 1; i < sizes.size(); ++i) leaf += "_" + std::to_string(sizes[i]);
        const ClassId name = graph.add(graph.symbols.of(leaf), {});
        classes.push_back(graph.add(graph.symbols.of("input"), std::span(&name, 1)));
        values.emplace_back(0, tensor);
      }
      const auto compute = [&](const Pattern& pattern) -> std::optional<at::Tensor> {
        std::vector<std::pair<std::int64_t, at::Tensor>> made;
        std::vector<tensat::Value> known;
        for (const Pattern::Term& term : pattern.terms) {
          if (term.variable != Pattern::no_variable) {
            made.push_back(values[static_cast<std::size_t>(term.variable)]);
            known.push_back(shapes.of(graph, classes[static_cast<std::size_t>(term.variable)]));
            continue;
          }
          const std::string& op = graph.symbols.name(term.op);
          std::vector<tensat::Value> children;
          std::vector<std::pair<std::int64_t, at::Tensor>> of;
          for (const int child : term.children) {
            children.push_back(known[static_cast<std::size_t>(child)]);
            of.push_back(made[static_cast<std::size_t>(child)]);
          }
          const auto shape = infer(op, children);
          if (!shape) return std::nullopt;
          known.push_back(*shape);
          at::Tensor result;
          if (term.children.empty()) {
            made.emplace_back(std::stoll(op), at::Tensor());
            continue;
          }
          if (op == "relu") result = of[0].second.relu();
          if (op == "tanh") result = of[0].second.tanh();
          if (op == "sigmoid") result = of[0].second.sigmoid();
          if (op == "transpose") result = of[0].second.t();
          if (op == "ewadd") result = of[0].second + of[1].second;
          if (op == "ewmul") result = of[0].second * of[1].second;
          if (op == "smul") result = of[0].second * of[1].second;
          if (op == "concat") result = at::cat({of[1].second, of[2].second}, of[0].first);
          if (op == "bias")
            result = of[1].second + (of[0].first == 0 ? of[2].second.unsqueeze(1) : of[2].second);
          if (op == "head" || op == "tail") {
            const std::int64_t length = of[2].second.size(of[3].first);
            result = of[1].second.narrow(of[0].first,
                                         op == "head" ? 0 : of[1].second.size(of[0].first) - length, length);
          }
          REQUIRE(result.defined());
          CHECK(result.sizes().vec() == shape->shape);
          made.emplace_back(0, result);
        }
        return made.back().second;
      };
      const auto left = compute(parsed.sources[0]), right = compute(parsed.targets[0]);
      if (!left || !right || left->sizes() != right->sizes()) continue;  // no match, or what shapes refuse
      ++met;
      INFO(rule.name);
      CHECK((*left - *right).abs().max().item<double>() < 1e-12);
    }
    INFO(rule.name);
    CHECK(met == 20);
    checked += met;
  }
  CHECK(checked == 20 * network_rules().size());
}

TEST_CASE("tensat: nodes that differ in an attribute have prices of their own") {
  GraphBuilder b(schema_of({12}), 3);
  const ValueId first = b.relu(b.linear(b.input(), "a", 8)), second = b.relu(b.linear(b.input(), "b", 8));
  Graph graph = b.finish(b.add(first, second));
  double alpha = 0.1;
  for (Node& node : graph.nodes)
    if (node.op == "Relu") {
      node.op = "LeakyRelu";
      node.attributes = {{"alpha", alpha}};
      alpha *= 2;
    }
  const Terms terms(graph);
  PriceTable table;
  Prices(graph, terms, {.training = true, .samples = 4}, table).all();
  CHECK(std::ranges::count_if(
            table, [](const auto& each) { return each.first.find("LeakyRelu") != std::string::npos; }) == 2);
}

TEST_CASE("prices are of the operator alone, for its shapes", "[quiet]") {
  const Graph graph = gates();
  Terms terms(graph);
  PriceTable table;
  Way way{.training = true, .samples = 64};
  Prices prices(graph, terms, way, table);
  const std::vector<double> costs = prices.all();
  for (NodeId node = 0; node < terms.egraph().nodes_made(); ++node) {
    if (!terms.egraph().alive(node)) continue;
    if (is_product(terms.egraph(), node)) CHECK(costs[node] > 0.0);
    CHECK(costs[node] < 0.1);
    CHECK(costs[node] >= 0.0);
  }
  CHECK(prices.measured() > 3);
  CHECK(table.size() >= 4);
  // They are taken once.
  Prices again(graph, terms, way, table);
  CHECK(again.all() == costs);
  CHECK(again.measured() == 0);
  // A product of 64 times the work costs more.
  PriceTable larger;
  way.samples = 4096;
  Prices more(graph, terms, way, larger);
  const std::vector<double> large = more.all();
  for (NodeId node = 0; node < terms.egraph().nodes_made(); ++node)
    if (terms.egraph().alive(node) && is_product(terms.egraph(), node)) CHECK(large[node] > 2 * costs[node]);
}

TEST_CASE("what needs no work costs nothing, and what is not measured in time is too dear to be chosen") {
  const Graph graph = gates();
  const auto op_of = [](const EGraph& e, NodeId node) { return e.symbols.name(e.op(node)); };
  for (const bool training : {true, false}) {
    Terms terms(graph);
    merge_groups(terms);
    const EGraph& e = terms.egraph();
    const Way way{.training = training, .samples = 8};
    PriceTable table;
    const std::vector<double> late = Prices(graph, terms, way, table, [] { return true; }).all();
    const PriceTable of_the_graph = table;
    const std::vector<double> costs = Prices(graph, terms, way, table).all();
    std::size_t made = 0, joins = 0;
    for (NodeId node = 0; node < e.nodes_made(); ++node) {
      if (!e.alive(node)) continue;
      const std::string op = op_of(e, node);
      INFO(op << ", training " << training);
      if (e.children(node).empty() || op == "input" || op == "weight" || op == "transpose")
        CHECK(costs[node] == 0.0);
      // Joined weights are computed once where they stay, and are a view where they do not.
      if (op == "concat" && terms.shapes().of(e, e.class_of(node)).weights) {
        ++joins;
        if (!training) CHECK(costs[node] == 0.0);
        CHECK(costs[node] < 1e-4);
      }
      CHECK(costs[node] < 0.1);
      // What the graph has is measured whatever the time; a product that a rewrite made is not.
      if (node < e.input_nodes())
        CHECK(late[node] < 0.1);
      else if (op == "matmul")
        CHECK(late[node] == 1.0);
      made += node >= e.input_nodes() && op == "matmul";
    }
    CHECK(made > 0);
    CHECK(joins > 0);
    CHECK((table.count("join") == 1) == training);
    // Of the graph: the gates' product with its bias, three activations, the sum, the product of two, and the last layer.
    CHECK(of_the_graph.size() < table.size());
    for (const auto& [key, seconds] : table) {
      INFO(key);
      CHECK(key.find(training ? "inference" : "training") == key.npos);
    }
  }
  // A price is that of the way of computing, and of whether the input gets a gradient.
  PriceTable table;
  Terms terms(graph);
  Prices(graph, terms, {.training = true, .samples = 8}, table).all();
  const auto of_gate = std::ranges::count_if(table, [](const auto& each) {
    return each.first.find("N_12i") == std::string::npos && each.first.find("N_12") != std::string::npos;
  });
  const auto first = std::ranges::count_if(table, [](const auto& each) {
    return each.first.find(" 12Ni") != std::string::npos || each.first.find(" N_12i") != std::string::npos;
  });
  CHECK(of_gate == 0);
  CHECK(first > 0);  // the batch itself, which nothing is derived by
}

TEST_CASE("what is known of a choice is written and read") {
  at::set_num_threads(1);
  const Graph graph = gates();
  Terms terms(graph);
  SavedPlan plan{key_of(graph, Way{}, Search{}), {}};
  plan.found.taken = true;
  plan.found.reason = "because \"of\" this";
  plan.found.program = chosen(terms, by_products);
  plan.found.hash = hash_of(graph_of(graph, plan.found.program));
  plan.found.merged = {"gate0", "gate1"};
  const SavedPlan read = read_plan(text_of(plan), "here");
  CHECK(read.key == plan.key);
  CHECK((read.found.program == plan.found.program));
  CHECK(hash_of(graph_of(graph, read.found.program)) == plan.found.hash);
  CHECK(text_of(read) == text_of(plan));
  CHECK_THROWS_WITH(read_plan("{", "that.json"), Contains("that.json: is no plan of tensat"));
  CHECK_THROWS_WITH(read_plan("{\"format\": 9}", "that.json"), Contains("format 9, this version reads 1"));
  CHECK_THROWS_AS(read_plan("{\"format\": 1}", "that.json"), DataError);
  // Each part of the key is one.
  Way other;
  other.samples = 2;
  CHECK_FALSE(key_of(graph, other, Search{}) == plan.key);
  other = Way{.training = false};
  CHECK_FALSE(key_of(graph, other, Search{}) == plan.key);
  CHECK_FALSE(key_of(graph, Way{}, Search{.k_multi = 0}) == plan.key);
  CHECK_FALSE(key_of(gates(3), Way{}, Search{}) == plan.key);
  CHECK(key_of(gates(), Way{}, Search{}) == plan.key);  // another network of the same
  at::set_num_threads(2);
  CHECK_FALSE(key_of(graph, Way{}, Search{}) == plan.key);
  at::set_num_threads(1);
}

TEST_CASE("the first choice for a key is that of all") {
  const OwnCache cache;
  const Graph graph = gates();
  const PlanKey key = key_of(graph, Way{}, Search{});
  {
    const Shared shared(shared_folder());
    CHECK_FALSE(shared.find(key));
    SavedPlan plan{key, {}};
    plan.found.reason = "first";
    shared.keep(plan);
    shared.keep(PriceTable{{"a", 1.5}}, 1);
  }
  const Shared shared(shared_folder());
  REQUIRE(shared.find(key));
  CHECK(shared.find(key)->found.reason == "first");
  CHECK(shared.prices(1) == PriceTable{{"a", 1.5}});
  CHECK(shared.prices(2).empty());
  PlanKey other = key;
  other.rules = "of another version";
  CHECK_FALSE(shared.find(other));
  // Nor is one taken that lies under its name and is of another key.
  write_file(shared_folder() + "/" + other.hash() + ".json", text_of(*shared.find(key)));
  CHECK_FALSE(shared.find(other));
}

TEST_CASE("one of two that search at once waits for the other") {
  const OwnCache cache;
  std::atomic<int> inside = 0;
  bool apart = true;
  const auto search = [&] {
    for (int i = 0; i < 20; ++i) {
      const Shared shared(shared_folder());
      if (++inside != 1) apart = false;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      --inside;
    }
  };
  std::thread one(search), other(search);
  one.join();
  other.join();
  CHECK(apart);
}

TEST_CASE("a run file says how passes are computed") {
  Table run = run_file();
  tensat::RunFacts facts = facts_of(run, true);
  CHECK(facts.obstacle.empty());
  CHECK(facts.way.samples == 16);
  CHECK(facts.way.training);
  CHECK_FALSE(facts.way.compiled);
  run.find("executor")->as<Table>().set("type", "compiled");
  CHECK(facts_of(run, true).way.fuses);
  CHECK(facts_of(run, true).way.winograd);
  run.find("executor")->as<Table>().set("winograd", false);
  facts = facts_of(run, false);
  CHECK(facts.way.compiled);
  CHECK(facts.way.fuses);
  CHECK_FALSE(facts.way.winograd);
  CHECK_FALSE(facts.way.training);
  run.find("executor")->as<Table>().set("fuse", "none");
  facts = facts_of(run, true);
  CHECK_FALSE(facts.way.fuses);
  CHECK(facts.way.text() == "compiled fuse=none winograd=false training");
  // Where it says nothing of these, they are as the host has them.
  facts = facts_of(Table(), true);
  CHECK(facts.obstacle.empty());
  CHECK_FALSE(facts.way.compiled);
  CHECK(facts.way.samples == 1);
  run.find("executor")->as<Table>().set("type", "wavelet");
  CHECK_THAT(facts_of(run, true).obstacle, Contains("wavelet"));
  run = run_file();
  Table trainer;
  trainer.set("precision", "bf16-mixed");
  run.set("trainer", trainer);
  CHECK_THAT(facts_of(run, true).obstacle, Contains("bf16-mixed"));
  run = run_file();
  Table where;
  where.set("device", "cuda:0");
  run.set("run", where);
  CHECK_THAT(facts_of(run, true).obstacle, Contains("cuda:0"));
  run = run_file();
  Table dropout, model;
  dropout.set("type", "dropconnect");
  model.set("dropout", dropout);
  run.set("model", model);
  CHECK_THAT(facts_of(run, true).obstacle, Contains("dropconnect"));
  run.find("model")->as<Table>().find("dropout")->as<Table>().set("type", "blockwise");
  CHECK_THAT(facts_of(run, true).obstacle, Contains("blockwise"));
  run.find("model")->as<Table>().find("dropout")->as<Table>().set("type", "bernoulli");
  CHECK(facts_of(run, true).obstacle.empty());
}

TEST_CASE("the transform tensat takes the choice that is kept, and leaves small networks alone") {
  const OwnCache cache;
  const BatchSchema schema = schema_of({12});
  const auto apply = [&](const Table& options) {
    auto transform = test::make<Transform>("tensat", options);
    dynamic_cast<const ReadsRunFile&>(*transform).read_run_file(run_file());
    return transform->apply(std::make_unique<GraphNetwork>(gates()), {schema, 1});
  };
  const Graph graph = gates();
  CHECK(hash_of(*apply({})->graph()) == hash_of(graph));
  CHECK_FALSE(std::filesystem::exists(shared_folder()));  // nothing was looked for
  // Whatever was chosen first is taken by all.
  Terms terms(graph);
  Way way{.training = true, .samples = 16};
  SavedPlan plan{key_of(graph, way, Search{}), {}};
  plan.found.taken = true;
  plan.found.program = chosen(terms, by_products);
  Shared(shared_folder()).keep(plan);
  const auto made = apply(test::table({{"least", 0.0}}));
  CHECK(count(*made->graph(), "Gemm") == 2);
  CHECK(parameters_of(*made->graph()) == parameters_of(graph));
  CHECK(difference(graph, *made->graph(), 5, 1, true) < 1e-12);
  // By a file, too, and one of another network is refused.
  write_file(cache.folder + "/plan.json", text_of(plan));
  CHECK(count(*apply(test::table({{"plan", cache.folder + "/plan.json"}}))->graph(), "Gemm") == 2);
  plan.key.graph = "another";
  write_file(cache.folder + "/plan.json", text_of(plan));
  CHECK_THROWS_WITH(apply(test::table({{"plan", cache.folder + "/plan.json"}})),
                    Contains("is of another network"));
  CHECK_THROWS_WITH(apply(test::table({{"plan", cache.folder + "/nothing.json"}})),
                    Contains("cannot be read"));
}

TEST_CASE("what tensat chose is told and kept with the run, and weights that a swap brings are laid again") {
  const OwnCache cache;
  const BatchSchema schema = schema_of({12});
  const Graph graph = gates();
  Terms terms(graph);
  SavedPlan plan{key_of(graph, Way{.training = true, .samples = 16}, Search{}), {}};
  plan.found.taken = true;
  plan.found.reason = "faster as a whole: 1 us of 2";
  plan.found.iterations = 1;
  plan.found.merged = {"gate0", "gate1"};
  plan.found.program = chosen(terms, by_products);
  Shared(shared_folder()).keep(plan);
  const std::string folder = cache.folder + "/run", file = folder + "/tensat.json";
  std::filesystem::create_directory(folder);
  trainyard::testing::FakeHost host;
  host.facts.directory = folder;
  test::Subscribed<Transform> tensat("tensat", test::table({{"least", 0.0}}));
  tensat.plugin().set_host(host);
  dynamic_cast<const ReadsRunFile&>(tensat.plugin()).read_run_file(run_file());
  auto network = tensat.plugin().apply(std::make_unique<GraphNetwork>(gates()), {schema, 1});
  CHECK_FALSE(std::filesystem::exists(file));  // a run begins with the event
  const Graph made = *network->graph();
  trainyard::testing::TinyRun run;
  run.add(tensat);
  run.use(std::move(network));
  run.fire(Event::model_ready);
  CHECK(host.logged("another graph is taken, faster as a whole: 1 us of 2", LogLevel::info));
  CHECK(host.logged("nodes that are in others now: gate0 gate1; 8 weights joined where they lie"));
  REQUIRE_FALSE(host.journal_entries.empty());
  CHECK(host.journal_entries[0] ==
        std::pair<std::string, std::string>("took another graph", plan.found.reason));
  REQUIRE(std::filesystem::exists(file));
  std::ifstream written(file);
  const std::string text{std::istreambuf_iterator<char>(written), {}};
  CHECK(read_plan(text, file).key == plan.key);
  CHECK((read_plan(text, file).found.program == plan.found.program));
  // It is not written again where it says the same.
  std::filesystem::last_write_time(file, std::filesystem::file_time_type{} + std::chrono::hours(1));
  const auto then = std::filesystem::last_write_time(file);
  run.fire(Event::model_ready);
  CHECK(std::filesystem::last_write_time(file) == then);
  // A swap brings the tensors of the network before it, which lie apart.
  const auto joins = [&] {
    std::size_t aliases = 0;
    std::map<std::string, at::Tensor> parameters;
    for (const NamedTensor& each : run.network().parameters()) parameters.emplace(each.name, each.tensor);
    const auto& now = dynamic_cast<GraphNetwork&>(run.network());
    for (std::size_t i = 0; i < made.nodes.size(); ++i) {
      if (made.nodes[i].op != "Concat" || made.nodes[i].integer("axis", 0) != 0) continue;
      std::vector<at::Tensor> inputs;
      for (const ValueId id : made.nodes[i].inputs)
        inputs.push_back(parameters.at(made.values[static_cast<std::size_t>(id)].name));
      aliases += const_cast<GraphNetwork&>(now).run_node(i, inputs, {})[0].is_alias_of(inputs[0]);
    }
    return aliases;
  };
  CHECK(joins() == 2);  // of weights and of biases
  {
    const at::NoGradGuard guard;
    for (const NamedTensor& each : run.network().parameters()) each.tensor.set_data(each.tensor.clone());
  }
  CHECK(joins() == 0);
  run.fire(Event::swap_in);
  CHECK(joins() == 2);
}

TEST_CASE("a choice that cannot be kept is not made") {
  const OwnCache cache;
  ::setenv("XDG_CACHE_HOME", "/proc/nowhere", 1);
  auto transform = test::make<Transform>("tensat", test::table({{"least", 0.0}}));
  dynamic_cast<const ReadsRunFile&>(*transform).read_run_file(run_file());
  const auto made = transform->apply(std::make_unique<GraphNetwork>(gates()), {schema_of({12}), 1});
  CHECK(hash_of(*made->graph()) == hash_of(gates()));
}

TEST_CASE("a search says what it did, and takes nothing that is not faster") {
  PriceTable table;
  const Found found = find_cheaper(gates(), {.training = true, .samples = 8},
                                   {.max_nodes = 500, .ilp_seconds = 0.3, .min_gain = 0.9}, table);
  CHECK_FALSE(found.taken);
  CHECK(found.nodes > found.classes);
  CHECK(found.iterations > 0);
  CHECK(found.predicted_before > 0.0);
  CHECK(found.predicted_after <= found.predicted_before);
  CHECK_FALSE(found.reason.empty());
  CHECK(found.groups == 1);
  // With prices by which merging pays, the whole is timed all the same.
  PriceTable lies;
  const Graph graph = gates();
  Terms terms(graph);
  const Found by_lies = [&] {
    for (auto& [key, seconds] : table) lies[key] = key.find("matmul") != std::string::npos ? 1e-3 : 1e-9;
    return find_cheaper(graph, {.training = true, .samples = 8},
                        {.max_nodes = 500, .ilp_seconds = 0.3, .min_gain = 0.5}, lies);
  }();
  CHECK_FALSE(by_lies.taken);
  CHECK(by_lies.before > 0.0);
  CHECK_THAT(by_lies.reason, Contains("not faster as a whole"));
}

TEST_CASE("a graph that gives other numbers is not taken, however fast") {
  // Some gates less are faster, and are others.
  const Graph graph = gates(8);
  const auto judged = [&](const Graph& of) {
    Terms terms(of);
    Found found;
    judge(graph, chosen(terms, by_products), {.training = true, .samples = 8}, {.min_gain = 0.0}, found);
    return found;
  };
  const Found same = judged(graph);
  CHECK(same.before > 0.0);
  Graph other = graph;
  for (Node& node : other.nodes)
    if (node.op == "Sigmoid") node.op = "Relu";
  const Found found = judged(other);
  CHECK_FALSE(found.taken);
  CHECK(found.before == 0.0);
  CHECK_THAT(found.reason, Contains("gives other numbers"));
}

}  // namespace tensat_networks_test
