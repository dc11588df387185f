// What tensat makes of five graphs: the card's figures of merged convolutions, gates, residual blocks and attention.
//   trainyard bench tensat_graphs                a line a graph and use
//   trainyard bench tensat_graphs --compiled     as the executor compiled computes them
//   bench_tensat_graphs --json [--quick]         the same as JSON; small and short
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <nlohmann/json.hpp>

#include <trainyard/graph/builder.hpp>

#include "plugins/transform/tensat/search.hpp"

using namespace tensat;
using namespace trainyard;

namespace {

GraphBuilder builder(std::vector<std::int64_t> shape) {
  BatchSchema schema;
  schema.inputs.push_back({.name = "x", .shape = std::move(shape)});
  schema.classes = 10;
  return {schema, 1};
}

/// Two narrow convolutions of one image, each with its activation, joined.
Graph block(std::int64_t each) {
  GraphBuilder b = builder({64, 28, 28});
  const ConvOptions options{.kernel = 3, .padding = 1};
  const ValueId one = b.relu(b.conv2d(b.input(), "one", each, options)),
                other = b.relu(b.conv2d(b.input(), "other", each, options));
  return b.finish(b.concat({one, other}, 1));
}

/// A recurrent cell: eight products of the input and eight of the state, added in pairs, over some steps.
Graph gates(std::int64_t steps, std::int64_t hidden) {
  GraphBuilder b = builder({hidden});
  std::vector<ValueId> of_input, of_state;
  for (int i = 0; i < 8; ++i) {
    of_input.push_back(b.uniform_parameter("of_input" + std::to_string(i), {hidden, hidden}, 0.02));
    of_state.push_back(b.uniform_parameter("of_state" + std::to_string(i), {hidden, hidden}, 0.02));
  }
  const auto product = [&](ValueId x, ValueId w) {
    return b.node("Gemm", "", {x, w}, {{"transB", std::int64_t{1}}});
  };
  ValueId state = b.tanh(b.input());
  for (std::int64_t step = 0; step < steps; ++step) {
    std::vector<ValueId> gate;
    for (std::size_t i = 0; i < 8; ++i) {
      const ValueId sum = b.add(product(b.input(), of_input[i]), product(state, of_state[i]));
      gate.push_back(i % 2 == 0 ? b.sigmoid(sum) : b.tanh(sum));
    }
    const ValueId left = b.add(b.mul(gate[0], gate[1]), b.mul(gate[2], gate[3]));
    const ValueId right = b.add(b.mul(gate[4], gate[5]), b.mul(gate[6], gate[7]));
    state = b.tanh(b.mul(left, right));
  }
  return b.finish(state);
}

/// Residual blocks of convolutions behind each other: there is nothing to merge.
Graph residual(std::int64_t size) {
  GraphBuilder b = builder({3, size, size});
  const auto conv = [&](ValueId x, const std::string& name, std::int64_t out, std::int64_t stride) {
    return b.batch_norm(b.conv2d(x, name, out, {.kernel = 3, .stride = stride, .padding = 1, .bias = false}),
                        name + ".norm");
  };
  ValueId x = b.relu(conv(b.input(), "stem", 16, 1));
  std::int64_t width = 16;
  for (int stage = 0; stage < 4; ++stage, width *= 2)
    for (int i = 0; i < 2; ++i) {
      const std::string name = "s" + std::to_string(stage) + "." + std::to_string(i);
      const std::int64_t stride = stage > 0 && i == 0 ? 2 : 1;
      ValueId y = conv(b.relu(conv(x, name + ".a", width, stride)), name + ".b", width, 1);
      if (stride == 2)
        x = b.batch_norm(b.conv2d(x, name + ".down", width, {.kernel = 1, .stride = 2, .bias = false}),
                         name + ".down.norm");
      x = b.relu(b.add(x, y));
    }
  return b.finish(b.linear(b.flatten(b.global_average_pool(x)), "out", 10));
}

/// Three products of [32, 64], of one input.
Graph qkv() {
  GraphBuilder b = builder({64});
  const ValueId q = b.linear(b.input(), "q", 64, false), k = b.linear(b.input(), "k", 64, false),
                v = b.linear(b.input(), "v", 64, false);
  return b.finish(b.add(b.mul(q, k), v));
}

struct Case {
  const char* name;
  std::function<Graph()> graph;
  std::int64_t samples;
  int threads;
  double bar;     ///< least gain
  bool declines;  ///< or the graph stays
};

}  // namespace

int main(int count, char** words) {
  bool json = false, quick = false, compiled = false;
  for (int i = 1; i < count; ++i) {
    json = json || std::strcmp(words[i], "--json") == 0;
    quick = quick || std::strcmp(words[i], "--quick") == 0;
    compiled = compiled || std::strcmp(words[i], "--compiled") == 0;
  }
  const std::vector<Case> cases = {
      {"convolutions 8 + 8", [] { return block(8); }, 1, 1, 1.6, false},
      {"convolutions 24 + 24", [] { return block(24); }, 1, 1, 1.3, false},
      {"gates 512", [&] { return quick ? gates(1, 64) : gates(5, 512); }, 1, 2, 1.5, false},
      {"residual", [&] { return residual(quick ? 8 : 32); }, 1, 1, 0.98, true},
      {"qkv 32 x 64", [] { return qkv(); }, 32, 1, 0.98, true},
  };
  nlohmann::json all = nlohmann::json::array();
  for (const Case& each : cases)
    for (const bool training : {false, true}) {
      at::set_num_threads(each.threads);
      const Graph graph = each.graph();
      PriceTable table;
      Search search;
      if (quick) {
        search.max_iterations = 3;
        search.max_nodes = 500;
        search.seconds = 0.3;
        search.ilp_seconds = 0.3;
      }
      const Found found = find_cheaper(
          graph, {.training = training, .compiled = compiled, .samples = each.samples}, search, table);
      all.push_back({{"graph", each.name},
                     {"use", training ? "training" : "inference"},
                     {"threads", each.threads},
                     {"taken", found.taken},
                     {"reason", found.reason},
                     {"before", 1e6 * found.before},
                     {"after", 1e6 * found.after},
                     {"gain", found.taken ? found.gain() : 1.0},
                     {"predicted_before", 1e6 * found.predicted_before},
                     {"predicted_after", 1e6 * found.predicted_after},
                     {"predicted_gain", found.predicted_gain()},
                     {"greedy", 1e6 * found.greedy},
                     {"nodes", found.nodes},
                     {"classes", found.classes},
                     {"iterations", found.iterations},
                     {"explored", found.explored},
                     {"priced", found.measuring},
                     {"extracted", found.extracted},
                     {"solver", found.solver},
                     {"gap", found.gap},
                     {"from", found.from},
                     {"bar", each.bar},
                     {"declines", each.declines}});
      if (!json)
        std::printf(
            "%-21s %-9s %d threads: %s; predicted %.1f -> %.1f us; %zu nodes, explored %.2f s, priced %.2f "
            "s, extracted %.2f s (%s, %s)\n",
            each.name, training ? "training" : "inference", each.threads, found.reason.c_str(),
            1e6 * found.predicted_before, 1e6 * found.predicted_after, found.nodes, found.explored,
            found.measuring, found.extracted, found.from.c_str(), found.solver.c_str());
      std::fflush(stdout);
    }
  if (json) std::printf("%s\n", all.dump(1).c_str());
  return 0;
}
