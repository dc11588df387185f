// Graphs of several outputs, and graphs cut into parts: the parts, one after another, are the whole.
#include <algorithm>
#include <map>
#include <set>

#include <ATen/ATen.h>
#include <catch2/catch.hpp>

#include <trainyard/error.hpp>
#include <trainyard/graph/builder.hpp>
#include <trainyard/graph/cut.hpp>
#include <trainyard/graph/network.hpp>
#include <trainyard/random.hpp>

#include "tests/support/parts.hpp"

namespace cut_tests {

using namespace trainyard;

namespace {

using Catch::Matchers::Contains;
using Names = std::vector<std::string>;

Names names(const Graph& graph, const std::vector<ValueId>& ids) {
  Names result;
  for (const ValueId id : ids) result.push_back(graph.values[static_cast<std::size_t>(id)].name);
  return result;
}

Names nodes(const Graph& graph) {
  Names result;
  for (const Node& node : graph.nodes) result.push_back(node.name);
  return result;
}

BatchSchema two_inputs() {
  BatchSchema schema;
  schema.inputs = {{"x", {6}}, {"tokens", {4}, at::kLong}};
  return schema;
}

/// a -> b -> c -> d, where d also reads what a gives, and tokens come in at c.
Graph skipping() {
  GraphBuilder b(two_inputs(), 1);
  const ValueId first = b.linear(b.input(), "a", 5);
  const ValueId second = b.node("Tanh", "b", {first});
  const ValueId rows = b.embedding(b.input(1), "e", 9, 5).output;
  const ValueId row = b.node("ReduceMean", "mean", {rows, b.constant("axes", at::tensor({1}, at::kLong))},
                             {{"keepdims", std::int64_t{0}}});
  const ValueId third = b.node("Add", "c", {second, row});
  return b.finish(b.node("Mul", "d", {third, first}));
}

/// Draws from a stream, one number after another.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : stream_(seed, "cut") {}
  std::size_t below(std::size_t bound) { return stream_.below(next_++, bound); }
  template <class T>
  const T& of(const std::vector<T>& all) {
    return all[below(all.size())];
  }

 private:
  RandomStream stream_;
  std::uint64_t next_ = 0;
};

/// Layers between any two values so far, of both inputs; every value is read in the end.
Graph random_graph(Dice& dice) {
  constexpr std::int64_t width = 6;
  GraphBuilder b(two_inputs(), 7);
  const auto embedded = b.embedding(b.input(1), "embedding", 9, width);
  std::vector<ValueId> values = {b.input(), b.slice(embedded.output, 1, 0, 1)};
  values[1] = b.reshape(values[1], {-1, width});
  std::set<ValueId> unread(values.begin(), values.end());
  bool tied = false;
  const auto pick = [&] {
    const ValueId id = dice.below(2) == 0 ? values.back() : dice.of(values);
    unread.erase(id);
    return id;
  };
  const std::size_t layers = 6 + dice.below(12);
  for (std::size_t i = 0; i < layers; ++i) {
    const std::string name = "layer" + std::to_string(i);
    std::vector<ValueId> made;
    switch (dice.below(tied ? 9 : 10)) {
      case 0: made = {b.linear(pick(), name, width)}; break;
      case 1: made = {b.relu(pick())}; break;
      case 2: made = {b.gelu(pick())}; break;
      case 3: made = {b.add(pick(), pick())}; break;
      case 4: made = {b.mul(b.tanh(pick()), pick())}; break;
      case 5: made = {b.linear(b.concat({pick(), pick()}, 1), name, width)}; break;
      case 6: {
        const std::vector<ValueId> halves = b.split(pick(), 2, 1);
        made = {b.concat({halves[1], halves[0]}, 1), b.concat({halves[0], halves[0]}, 1)};
        break;
      }
      case 7: made = {b.batch_norm(pick(), name)}; break;
      case 8: made = {b.layer_norm(pick(), name)}; break;
      default:
        made = {b.linear(b.tied_linear(pick(), name, embedded.weight), name + ".back", width)};
        tied = true;
    }
    values.insert(values.end(), made.begin(), made.end());
    unread.insert(made.begin(), made.end());
  }
  Graph graph = b.finish(b.linear(b.concat({unread.begin(), unread.end()}, 1), "head", 3));
  for (std::size_t more = dice.below(3); more > 0; --more) graph.outputs.push_back(dice.of(values));
  graph.infer_shapes();
  return graph;
}

/// Part numbers without a gap that do not decrease along the nodes, or, where not `in_order`, along edges.
std::vector<int> random_parts(const Graph& graph, Dice& dice, bool in_order) {
  std::vector<int> parts, made(graph.values.size(), 0);
  for (const Node& node : graph.nodes) {
    int part = in_order && !parts.empty() ? parts.back() : 0;
    for (const ValueId id : node.inputs)
      if (id != no_value) part = std::max(part, made[static_cast<std::size_t>(id)]);
    parts.push_back(part + (dice.below(4) == 0 ? 1 : 0));
    for (const ValueId id : node.outputs) made[static_cast<std::size_t>(id)] = parts.back();
  }
  std::map<int, int> dense;
  for (const int part : parts) dense.emplace(part, 0);
  int next = 0;
  for (auto& [part, number] : dense) number = next++;
  for (int& part : parts) part = dense[part];
  return parts;
}

}  // namespace

TEST_CASE("a graph of several outputs gives them all", "[graph]") {
  GraphBuilder b(two_inputs(), 1);
  const ValueId hidden = b.linear(b.input(), "fc1", 5), y = b.linear(b.relu(hidden), "fc2", 3);
  Graph graph = b.finish(y);
  const at::Tensor x = at::randn({2, 6}), tokens = at::zeros({2, 4}, at::kLong);
  GraphNetwork single(graph);
  graph.outputs = {y, hidden, graph.inputs[1], y, graph.find_value("fc2.bias")};
  GraphNetwork network(graph);

  for (int pass = 0; pass < 2; ++pass) {
    const std::vector<at::Tensor> outputs = network.forward_all({x, tokens}, {});
    REQUIRE(outputs.size() == 5);
    CHECK(at::equal(outputs[0], single.forward_all({x, tokens}, {}).front()));
    CHECK(
        at::equal(outputs[1], at::linear(x, network.parameters()[0].tensor, network.parameters()[1].tensor)));
    CHECK(outputs[2].is_same(tokens));
    CHECK(outputs[3].is_same(outputs[0]));
    CHECK(outputs[4].is_same(network.parameters()[3].tensor));
    CHECK(outputs[1].use_count() == 1);  // the network keeps nothing
  }
  Batch batch;
  batch.inputs = {x, tokens};
  CHECK_THROWS_WITH(network.forward(batch, {}), Contains("has 5 outputs; a model has one"));
  CHECK_THROWS_WITH(network.output_shape(), Contains("has 5 outputs"));
  CHECK(at::equal(single.forward(batch, {}), network.forward_all(batch.inputs, {}).front()));
}

TEST_CASE("a part takes what the one before gives, and passes through what is needed further on", "[cut]") {
  const Graph graph = skipping();
  REQUIRE(nodes(graph) == Names{"a", "b", "e", "mean", "c", "d"});
  const std::vector<Graph> parts = cut(graph, std::vector<int>{0, 1, 2, 2, 2, 3});
  REQUIRE(parts.size() == 4);
  const auto check = [&](std::size_t part, const Names& inputs, const Names& of_nodes, const Names& outputs) {
    INFO("part " << part);
    CHECK(names(parts[part], parts[part].inputs) == inputs);
    CHECK(nodes(parts[part]) == of_nodes);
    CHECK(names(parts[part], parts[part].outputs) == outputs);
  };
  check(0, {"x", "tokens"}, {"a"}, {"tokens", "a:0"});
  check(1, {"tokens", "a:0"}, {"b"}, {"tokens", "a:0", "b:0"});
  check(2, {"tokens", "a:0", "b:0"}, {"e", "mean", "c"}, {"a:0", "c:0"});
  check(3, {"a:0", "c:0"}, {"d"}, {"d:0"});
  CHECK(parts[0].find_value("a.weight") != no_value);
  CHECK(parts[1].values.size() == 3);  // nothing of the others
  for (Graph part : parts) CHECK_NOTHROW(part.infer_shapes());

  const std::vector<Graph> whole = cut(graph, std::vector<int>(6, 0));
  REQUIRE(whole.size() == 1);
  CHECK(nodes(whole[0]) == nodes(graph));
  CHECK(names(whole[0], whole[0].inputs) == names(graph, graph.inputs));
  CHECK(names(whole[0], whole[0].outputs) == names(graph, graph.outputs));
}

TEST_CASE("a cut that is none is refused with what is wrong", "[cut]") {
  const Graph graph = skipping();
  const auto refused = [&](std::vector<int> parts, const std::string& text) {
    CHECK_THROWS_AS(cut(graph, parts), ConfigError);
    CHECK_THROWS_WITH(cut(graph, parts), Contains(text));
  };
  refused({0, 1, 1, 1, 0, 1}, "node \"c\" of part 0 reads \"b:0\" of node \"b\", which is in part 1");
  refused({1, 1, 0, 0, 1, 0}, "node \"d\" of part 0 reads \"c:0\" of node \"c\", which is in part 1");
  refused({0, 0, 0, 0, 2, 2}, "part 1 has no node");
  refused({-1, 0, 0, 0, 0, 0}, "part -1 is no part; they count from 0");
  refused({0, 0, 0}, "has part numbers for 3 nodes, the graph has 6");
  refused({}, "has part numbers for 0 nodes");
}

TEST_CASE("random graphs in random parts that follow their nodes: forward and backward, to the bit",
          "[cut]") {
  std::size_t most_parts = 0, passed = 0, shared = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    INFO("seed " << seed);
    Dice dice(seed);
    const Graph graph = random_graph(dice);
    const std::vector<int> parts = random_parts(graph, dice, true);
    at::manual_seed(seed);
    const std::vector<at::Tensor> inputs = {at::randn({5, 6}), at::randint(9, {5, 4}, at::kLong)};
    const test::Differences found = test::compare_with_parts(graph, parts, inputs);
    CHECK(found.exact);
    most_parts = std::max(most_parts, found.parts);
    passed += found.passed_through;
    shared += found.shared_weights;
  }
  CHECK(most_parts > 5);  // the generator makes what the test is about
  CHECK(passed > 100);
  CHECK(shared > 10);
}

TEST_CASE("parts that do not follow the nodes: to the bit but for the order of sums", "[cut]") {
  std::size_t tangled = 0;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    INFO("seed " << seed);
    Dice dice(seed);
    const Graph graph = random_graph(dice);
    const std::vector<int> parts = random_parts(graph, dice, false);
    tangled += !std::ranges::is_sorted(parts);
    at::manual_seed(seed);
    const std::vector<at::Tensor> inputs = {at::randn({5, 6}), at::randint(9, {5, 4}, at::kLong)};
    const test::Differences found = test::compare_with_parts(graph, parts, inputs);
    CHECK(found.outputs_exact);
    CHECK(found.close);
  }
  CHECK(tangled > 30);
}

}  // namespace cut_tests
