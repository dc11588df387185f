// Recurrent layers against the network's own, in every combination of what they are given and what is read of them.
#include <catch2/catch.hpp>

#include <ATen/Parallel.h>

#include <algorithm>

#include "tests/plugins/compiled_plans.hpp"

namespace compiled_recurrent_tests {

namespace {

using namespace trainyard;
using namespace trainyard::test;
using compiled::Plan;
using compiled::PlanKey;

using Attributes = std::map<std::string, Attribute, std::less<>>;

enum class Start { zeros, output, all };

/// A layer of LSTM or GRU, or of the RNN with that function, over [samples, time, in] or [time, samples, in]; of what it gives, the bits of `reads` are read: the
/// outputs, the last output, the last cells.
struct Layer {
  std::string op, direction;
  bool bias, batch_first;
  Start start;
  int reads;
  bool stacked;
  std::int64_t samples, time, in, hidden;

  bool is_rnn() const { return op != "LSTM" && op != "GRU"; }
  std::int64_t gates() const { return op == "LSTM" ? 4 : is_rnn() ? 1 : 3; }
  std::int64_t directions() const { return direction == "bidirectional" ? 2 : 1; }
  std::int64_t values() const { return directions() * hidden; }
  bool reads_output() const { return (reads & 1) != 0; }
};

class Maker {
 public:
  explicit Maker(const Layer& of) : of_(of), b_(schema_of({of.time, of.in}), 3) {}

  Graph make() {
    const ValueId rows = b_.tanh(b_.linear(b_.input(), "rows", of_.in));
    // Values of a state's shape, in whose place come the states behind the last step.
    const ValueId places[] = {state_of(rows, "place.h"), state_of(rows, "place.c")};
    const ValueId first =
        layer("one", of_.batch_first ? rows : turned(rows, {1, 0, 2}), of_.in,
              of_.start == Start::zeros ? no_value : state_of(rows, "first.h"),
              of_.start == Start::all && of_.op == "LSTM" ? state_of(rows, "first.c") : no_value);
    ValueId end = no_value;
    const auto read = [&](ValueId value, const std::string& name) {
      const ValueId made = b_.linear(b_.flatten(value), name, 4);
      end = end == no_value ? made : b_.add(end, made);
    };
    if (of_.reads_output()) {
      ValueId y = rows_of(first);
      if (of_.stacked)
        y = rows_of(
            layer("two", of_.batch_first ? y : turned(y, {1, 0, 2}), of_.values(), no_value, no_value));
      read(y, "end.y");
    }
    for (int i = 0; i < 2; ++i)
      if ((of_.reads & 2 << i) != 0)
        read(of_.batch_first ? places[i] : turned(places[i], {1, 0, 2}), "end" + std::to_string(i));
    Graph graph = b_.finish(end);
    give_states(graph, places);
    return graph;
  }

 private:
  ValueId turned(ValueId x, std::vector<std::int64_t> order) {
    return b_.node("Transpose", "", {x}, {{"perm", std::move(order)}});
  }
  ValueId state_of(ValueId rows, const std::string& name) {
    const ValueId state =
        b_.reshape(b_.linear(b_.flatten(rows), name, of_.values()), {-1, of_.directions(), of_.hidden});
    return of_.batch_first ? state : turned(state, {1, 0, 2});
  }
  /// [samples, time, all directions]
  ValueId rows_of(ValueId y) {
    return b_.reshape(of_.batch_first ? y : turned(y, {2, 0, 1, 3}), {-1, of_.time, of_.values()});
  }
  ValueId layer(const std::string& name, ValueId x, std::int64_t in, ValueId first, ValueId cells) {
    const auto weight = [&](const char* which, std::vector<std::int64_t> shape) {
      return b_.uniform_parameter(name + which, shape, 0.5);
    };
    Attributes attributes = {{"hidden_size", of_.hidden},
                             {"direction", of_.direction},
                             {"layout", std::int64_t{of_.batch_first ? 1 : 0}}};
    if (of_.op == "GRU") attributes["linear_before_reset"] = std::int64_t{1};
    if (of_.is_rnn())
      attributes["activations"] =
          std::vector<std::string>(static_cast<std::size_t>(of_.directions()), of_.op);
    std::vector<ValueId> inputs = {
        x,
        weight(".w", {of_.directions(), of_.gates() * of_.hidden, in}),
        weight(".r", {of_.directions(), of_.gates() * of_.hidden, of_.hidden}),
        of_.bias ? weight(".b", {of_.directions(), 2 * of_.gates() * of_.hidden}) : no_value,
        no_value,
        first};
    if (of_.op == "LSTM") inputs.push_back(cells);
    return b_.node(of_.is_rnn() ? "RNN" : of_.op, name, inputs, attributes);
  }
  /// The builder makes nodes of one output: the layer has the others from here on.
  void give_states(Graph& graph, const ValueId (&places)[2]) const {
    Node& layer = *std::find_if(graph.nodes.begin(), graph.nodes.end(),
                                [](const Node& each) { return each.name == "one"; });
    if (!of_.reads_output()) layer.outputs[0] = no_value;
    for (int i = 0; i < 2; ++i) {
      if ((of_.reads & 2 << i) == 0) {
        layer.outputs.push_back(no_value);
        continue;
      }
      const auto made = static_cast<ValueId>(graph.values.size());
      GraphValue value = graph.values[static_cast<std::size_t>(places[i])];
      value.name += " of the layer";
      graph.values.push_back(std::move(value));
      layer.outputs.push_back(made);
      for (Node& each : graph.nodes) std::replace(each.inputs.begin(), each.inputs.end(), places[i], made);
    }
    if (of_.op != "LSTM") layer.outputs.resize(2);
  }

  Layer of_;
  GraphBuilder b_;
};

std::vector<Layer> layers() {
  std::vector<Layer> found;
  constexpr std::array<std::int64_t, 4> samples = {1, 4, 9, 3};
  constexpr std::array<std::int64_t, 5> time = {5, 1, 2, 7, 4};
  constexpr std::array<std::int64_t, 2> in = {6, 3};
  constexpr std::array<std::int64_t, 3> hidden = {7, 16, 33};
  for (const std::string op : {"LSTM", "GRU", "Tanh", "Relu"})
    for (const std::string direction : {"forward", "bidirectional", "reverse"})
      for (const bool bias : {true, false})
        for (const bool batch_first : {true, false})
          for (const Start start : {Start::zeros, Start::output, Start::all})
            for (int reads = 1; reads < (op == "LSTM" ? 8 : 4); ++reads)
              for (const bool stacked : {false, true}) {
                if ((stacked && (reads & 1) == 0) || (op != "LSTM" && start == Start::all)) continue;
                const std::size_t i = found.size();
                found.push_back({op, direction, bias, batch_first, start, reads, stacked, samples[i / 3 % 4],
                                 time[i % 5], in[i % 2], hidden[i % 3]});
              }
  return found;
}

/// A number of threads, and the one from before again.
class Threads {
 public:
  explicit Threads(int count) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_ = at::get_num_threads();
};

std::string words(const Layer& of) {
  return of.op + ", " + of.direction + (of.bias ? "" : ", no bias") + (of.batch_first ? "" : ", time first") +
         ", start " + std::to_string(static_cast<int>(of.start)) + ", reads " + std::to_string(of.reads) +
         (of.stacked ? ", stacked" : "") + ", samples " + std::to_string(of.samples) + ", time " +
         std::to_string(of.time) + ", in " + std::to_string(of.in) + ", hidden " + std::to_string(of.hidden);
}

TEST_CASE("Compiled recurrent layers are the network", "[compiled]") {
  int number = 0;
  for (const Layer& each : layers()) {
    const Threads threads(1 + number++ % 3);
    INFO(words(each) << ", threads " << at::get_num_threads());
    check_same([&] { return Maker(each).make(); }, several({each.samples, each.time, each.in}));
    GraphNetwork network(Maker(each).make());
    const Plan plan(network, PlanKey{.inputs = {{each.samples, each.time, each.in}}}, {});
    for (const std::string& left : plan.by_libtorch())
      CHECK(left.find(each.is_rnn() ? "RNN" : each.op) == std::string::npos);
  }
}

TEST_CASE("A GRU that resets ahead of its product is left to LibTorch", "[compiled]") {
  for (const std::string direction : {"forward", "reverse", "bidirectional"}) {
    const std::int64_t directions = direction == "bidirectional" ? 2 : 1;
    const auto make = [&] {
      GraphBuilder b(schema_of({5, 4}), 3);
      const ValueId rows = b.tanh(b.linear(b.input(), "rows", 4));
      const ValueId y = b.node("GRU", "early",
                               {rows, b.uniform_parameter("w", {directions, 24, 4}, 0.5),
                                b.uniform_parameter("r", {directions, 24, 8}, 0.5),
                                b.uniform_parameter("b", {directions, 48}, 0.5)},
                               {{"layout", std::int64_t{1}}, {"direction", direction}});
      return b.finish(b.linear(b.flatten(y), "end", 4));
    };
    check_same(make, several({4, 5, 4}));
    GraphNetwork network(make());
    const Plan plan(network, PlanKey{.inputs = {{4, 5, 4}}}, {});
    REQUIRE(plan.by_libtorch().size() == 1);
  }
}

TEST_CASE(
    "Compiled recurrent layers share weights, and leave alone those that "
    "do not train",
    "[compiled]") {
  for (const std::string op : {"LSTM", "GRU"})
    for (int frozen = 0; frozen < 8; ++frozen) {
      INFO(op << ", fixed: " << frozen);
      check_same(
          [&] {
            GraphBuilder b(schema_of({5, 8}), 3);
            const std::int64_t gates = op == "LSTM" ? 4 : 3;
            const auto weight = [&](int i, const char* name, std::vector<std::int64_t> shape) {
              return (frozen >> i & 1) != 0 ? b.constant(name, at::rand(shape) - 0.5)
                                            : b.uniform_parameter(name, shape, 0.5);
            };
            at::manual_seed(3);
            const ValueId w = weight(0, "w", {1, gates * 8, 8}), r = weight(1, "r", {1, gates * 8, 8}),
                          bias = weight(2, "b", {1, 2 * gates * 8});
            const auto layer = [&](ValueId x, const char* name) {
              Attributes attributes = {{"hidden_size", std::int64_t{8}}, {"layout", std::int64_t{1}}};
              if (op == "GRU") attributes["linear_before_reset"] = std::int64_t{1};
              return b.reshape(b.node(op, name, {x, w, r, bias}, attributes), {-1, 5, 8});
            };
            return b.finish(b.linear(b.flatten(layer(layer(b.input(), "one"), "two")), "end", 4));
          },
          several({4, 5, 8}));
    }
}

TEST_CASE("Compiled recurrent layers add to gradients that others gave", "[compiled]") {
  for (const std::string op : {"LSTM", "GRU"})
    for (const bool batch_first : {true, false}) {
      INFO(op << (batch_first ? "" : ", time first"));
      check_same(
          [&] {
            GraphBuilder b(schema_of({5, 8}), 3);
            const std::int64_t gates = op == "LSTM" ? 4 : 3;
            const auto turned = [&](ValueId x) {
              return batch_first
                         ? x
                         : b.node("Transpose", "", {x}, {{"perm", std::vector<std::int64_t>{1, 0, 2}}});
            };
            const ValueId rows = b.tanh(b.linear(b.input(), "rows", 8)), x = turned(rows),
                          state = turned(b.reshape(b.linear(b.flatten(rows), "state", 8), {-1, 1, 8}));
            Attributes attributes = {{"hidden_size", std::int64_t{8}},
                                     {"layout", std::int64_t{batch_first ? 1 : 0}}};
            if (op == "GRU") attributes["linear_before_reset"] = std::int64_t{1};
            std::vector<ValueId> inputs = {x,
                                           b.uniform_parameter("w", {1, gates * 8, 8}, 0.5),
                                           b.uniform_parameter("r", {1, gates * 8, 8}, 0.5),
                                           no_value,
                                           no_value,
                                           state};
            if (op == "LSTM") inputs.push_back(state);
            const ValueId y = b.node(op, "layer", inputs, attributes);
            // Those behind the layer come first on the way back.
            const ValueId sum =
                batch_first ? b.add(b.reshape(y, {-1, 5, 8}), x) : b.add(b.reshape(y, {5, -1, 8}), x);
            return b.finish(b.add(b.linear(b.flatten(turned(sum)), "end", 4),
                                  b.linear(b.flatten(turned(state)), "side", 4)));
          },
          several({4, 5, 8}));
    }
}

}  // namespace

}  // namespace compiled_recurrent_tests
