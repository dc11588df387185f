// The executor partitioned: the graph of a step against its definition, jobs that wait for each other, and steps in clusters
// against the network on one thread, bit for bit.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <torch/csrc/autograd/autograd.h>
#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>

#include <trainyard/graph/builder.hpp>
#include <trainyard/graph/network.hpp>

#include "lib/waits.hpp"
#include "plugins/executor/partitioned/choice.hpp"
#include "plugins/executor/partitioned/crew.hpp"
#include "plugins/executor/partitioned/cut.hpp"
#include "plugins/executor/partitioned/overheads.hpp"
#include "plugins/executor/partitioned/plan.hpp"
#include "tests/plugins/wavelet_yard.hpp"
#include "tests/support/cache_home.hpp"
#include "tests/support/files.hpp"

namespace partitioned_tests {

using namespace trainyard;
using namespace partitioned;

namespace {

using partition::Cluster;
using Random = std::mt19937;

BatchSchema schema_of(std::vector<std::int64_t> shape) {
  BatchSchema schema;
  schema.inputs = {{.name = "x", .shape = std::move(shape), .dtype = at::kFloat}};
  return schema;
}

std::size_t below(Random& random, std::size_t count) {
  return std::uniform_int_distribution<std::size_t>(0, count - 1)(random);
}

Graph towers(std::int64_t width, int count, int depth, bool shares) {
  GraphBuilder b(schema_of({width}), 3);
  const ValueId shared = b.uniform_parameter("shared.weight", {width, width}, 0.1);
  std::vector<ValueId> ends;
  for (int t = 0; t < count; ++t) {
    ValueId x = b.input();
    for (int d = 0; d < depth; ++d) {
      const std::string name = "t" + std::to_string(t) + ".l" + std::to_string(d);
      x = b.relu(shares && d == 1 ? b.tied_linear(x, name, shared) : b.linear(x, name, width));
    }
    ends.push_back(x);
  }
  return b.finish(b.linear(b.concat(ends, 1), "out", 3));
}

/// Blocks of four branches of convolutions, with residual sums and running statistics.
Graph inception(bool normalised) {
  GraphBuilder b(schema_of({3, 8, 8}), 3);
  const auto unit = [&](ValueId x, const std::string& name, std::int64_t out, std::int64_t kernel) {
    x = b.conv2d(x, name, out, {.kernel = kernel, .padding = kernel / 2});
    return b.relu(normalised ? b.batch_norm(x, name + ".bn") : x);
  };
  ValueId x = unit(b.input(), "stem", 8, 3);
  for (int i = 0; i < 2; ++i) {
    const std::string name = "b" + std::to_string(i);
    const ValueId one = unit(x, name + ".one", 2, 1);
    const ValueId three = unit(unit(x, name + ".three.in", 2, 1), name + ".three", 2, 3);
    const ValueId five = unit(unit(x, name + ".five.in", 2, 1), name + ".five", 2, 5);
    const ValueId pooled = unit(b.max_pool2d(x, 3, 1, 1), name + ".pool", 2, 1);
    x = b.add(x, b.concat({one, three, five, pooled}, 1));
  }
  return b.finish(b.linear(b.flatten(b.global_average_pool(x)), "out", 3));
}

/// A block of branches, towers with a weight in common on it.
Graph block_and_towers() {
  GraphBuilder b(schema_of({3, 6, 6}), 3);
  const auto unit = [&](ValueId x, const std::string& name, std::int64_t kernel) {
    return b.relu(
        b.batch_norm(b.conv2d(x, name, 4, {.kernel = kernel, .padding = kernel / 2}), name + ".bn"));
  };
  const ValueId x = unit(b.input(), "stem", 3);
  const ValueId sum =
      b.add(b.concat({x, x}, 1), b.concat({unit(x, "one", 1), unit(b.max_pool2d(x, 3, 1, 1), "pool", 3)}, 1));
  const ValueId rows = b.flatten(b.global_average_pool(sum));
  const ValueId shared = b.uniform_parameter("shared.weight", {8, 8}, 0.3);
  std::vector<ValueId> ends;
  for (const std::string name : {"t0", "t1", "t2"})
    ends.push_back(b.relu(b.tied_linear(b.relu(b.linear(rows, name + ".in", 8)), name + ".tied", shared)));
  return b.finish(b.linear(b.concat(ends, 1), "out", 3));
}

Graph attention() {
  GraphBuilder b(schema_of({6, 8}), 3);
  ValueId x = b.input();
  for (int i = 0; i < 2; ++i) {
    const std::string name = "a" + std::to_string(i);
    const ValueId y = b.layer_norm(x, name + ".ln");
    const ValueId q = b.linear(y, name + ".q", 8), k = b.linear(y, name + ".k", 8),
                  v = b.linear(y, name + ".v", 8);
    x = b.add(x, b.attention(q, k, v, name, 2, true));
    x = b.add(x, b.linear(b.gelu(b.linear(x, name + ".up", 16)), name + ".down", 8));
  }
  return b.finish(b.linear(b.flatten(x), "out", 3));
}

/// A value that one node reads twice, and others read as well; a recurrent layer, whose weights each time step reads, on the same.
Graph often_read() {
  GraphBuilder b(schema_of({5, 4}), 3);
  const ValueId x = b.linear(b.input(), "in", 4);
  const ValueId squares = b.mul(x, x);
  const ValueId y = b.lstm(x, "lstm", 4), z = b.lstm(b.tanh(x), "lstm2", 4);
  const ValueId sum = b.add(b.add(squares, b.sigmoid(x)), b.mul(y, z));
  const std::vector<ValueId> halves = b.split(b.add(sum, x), 2, 2);
  const ValueId last = b.tanh(b.mul(b.add(halves[0], halves[1]), b.slice(x, 2, 0, 2)));
  return b.finish(b.linear(b.flatten(b.mul(last, last)), "out", 3));
}

/// Anything upon anything, on rows of six numbers.
Graph at_random(Random& random) {
  GraphBuilder b(wavelet::six_numbers(at::kFloat), 3);
  const ValueId shared = b.uniform_parameter("shared.weight", {6, 6}, 0.4);
  std::vector<ValueId> values = {b.input()};
  const auto any = [&] {
    return values[values.size() - 1 - below(random, std::min<std::size_t>(values.size(), 5))];
  };
  const std::size_t count = 6 + below(random, 18);
  for (std::size_t i = 0; i < count; ++i) {
    const std::string name = "n" + std::to_string(i);
    const auto one = [&]() -> ValueId {
      switch (below(random, 11)) {
        case 0: return b.linear(any(), name, 6);
        case 1: return b.tied_linear(any(), name, shared);
        case 2: return b.relu(any());
        case 3: return b.tanh(any());
        case 4: return b.add(any(), any());
        case 5: return b.mul(any(), any());
        case 6: return b.layer_norm(any(), name);
        case 7: return b.batch_norm(any(), name);
        case 8: return b.gelu(any());
        case 9: {
          const std::vector<ValueId> parts = b.split(any(), 2, 1);
          return b.concat({parts[1], b.sigmoid(parts[0])}, 1);
        }
        default: return b.dropout(any(), name);
      }
    };
    values.push_back(one());
  }
  ValueId x = values.back();
  if (below(random, 2) == 0) x = b.add(x, b.add(any(), any()));
  return b.finish(b.linear(x, "out", 3));
}

Placement placed_at_random(std::size_t nodes, std::size_t clusters, Random& random) {
  Placement placement;
  for (std::size_t i = 0; i < nodes; ++i) {
    placement.forward.push_back(static_cast<Cluster>(below(random, clusters)));
    placement.backward.push_back(below(random, 3) > 0 ? placement.forward.back()
                                                      : static_cast<Cluster>(below(random, clusters)));
  }
  return placement;
}

struct Result {
  at::Tensor output;
  std::vector<at::Tensor> gradients, buffers;
};

/// Two passes, whose gradients add up.
Result passes(GraphNetwork& network, const std::function<at::Tensor(const Batch&)>& forward,
              const std::vector<Batch>& batches) {
  const at::AutoGradMode tracked(true);
  Result result;
  for (const Batch& batch : batches) {
    result.output = forward(batch);
    (result.output - 0.5).square().sum().backward();
  }
  for (const NamedTensor& each : network.parameters()) {
    result.gradients.push_back(each.tensor.grad().defined() ? each.tensor.grad().clone() : at::Tensor());
    each.tensor.mutable_grad().reset();
  }
  for (const NamedTensor& each : network.buffers()) result.buffers.push_back(each.tensor.clone());
  result.output = result.output.detach();
  return result;
}

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) return a.defined() == b.defined();
  return a.sizes() == b.sizes() && a.strides() == b.strides() &&
         at::equal(at::nan_to_num(a), at::nan_to_num(b)) && at::equal(a.isnan(), b.isnan());
}

void check_same(const Result& a, const Result& b) {
  CHECK(same_bits(a.output, b.output));
  REQUIRE(a.gradients.size() == b.gradients.size());
  bool same = true;
  for (std::size_t i = 0; i < a.gradients.size(); ++i)
    same = same && same_bits(a.gradients[i], b.gradients[i]);
  CHECK(same);
  same = true;
  for (std::size_t i = 0; i < a.buffers.size(); ++i) same = same && same_bits(a.buffers[i], b.buffers[i]);
  CHECK(same);
}

constexpr ForwardContext training{.training = true};

std::vector<Batch> inputs_of(const Graph& graph, std::int64_t size, unsigned seed) {
  at::Generator random = at::detail::createCPUGenerator(seed);
  std::vector<std::int64_t> shape = graph.values[static_cast<std::size_t>(graph.inputs.front())].shape;
  shape.front() = size;
  std::vector<Batch> made(2);
  for (Batch& batch : made) {
    batch.inputs = {at::randn(shape, random, at::kFloat)};
    batch.indices.resize(static_cast<std::size_t>(size));
    batch.weight = static_cast<double>(size);
  }
  return made;
}

std::shared_ptr<Plan> plan_of(GraphNetwork& network, Crew& crew, const Placement& placement,
                              std::optional<Traced> traced, bool joins = false) {
  const Graph& graph = *network.graph();
  const Times times = estimated(graph, 4, 1);
  const StepGraph step(graph, times, 4, Weights::time);
  const std::vector<bool> none(graph.nodes.size(), false), all(graph.nodes.size(), true);
  return std::make_shared<Plan>(
      network, crew,
      Plan::Setup{.segments = segments_of(graph, step.dependences(), placement, joins ? none : all),
                  .apart = none,
                  .step = &step,
                  .latency = assumed.latency,
                  .traced = std::move(traced)});
}

/// The reads that a traced pass finds.
Traced trace(GraphNetwork& network, Crew& crew, const Batch& batch) {
  const std::vector<Cluster> first(network.graph()->nodes.size(), 0);
  const auto plan = plan_of(network, crew, {first, first}, std::nullopt, false);
  plan->measure();
  const at::AutoGradMode tracked(true);
  plan->forward(batch, training).sum().backward();
  for (const NamedTensor& each : network.parameters()) each.tensor.mutable_grad().reset();
  for (std::size_t i = 0; i < plan->forward_times().size(); ++i) CHECK(plan->forward_times()[i] < 1e9);
  return plan->traced();
}

struct OneThread {
  OneThread() : before(at::get_num_threads()) { at::set_num_threads(1); }
  ~OneThread() { at::set_num_threads(before); }
  int before;
};

void compare(const Graph& graph, std::size_t clusters, std::uint32_t seed, int placements) {
  const OneThread one;
  testing::FakeHost host;
  Crew crew(host, clusters, {});
  Random random(seed);
  const auto twin = [&graph] {
    Graph copy = graph;
    for (GraphValue& value : copy.values)
      if (value.initializer.defined()) value.initializer = value.initializer.detach().clone();
    return GraphNetwork(std::move(copy));
  };
  for (int i = 0; i < placements; ++i) {
    GraphNetwork plain = twin(), cut = twin(), other = twin();
    const std::vector<Batch> batches =
        inputs_of(graph, 4 + static_cast<std::int64_t>(below(random, 3)), seed);
    const Result expected = passes(
        plain, [&](const Batch& batch) { return plain.forward(batch, training); }, batches);
    std::optional<Traced> traced;
    if (i % 3 > 0) traced = trace(other, crew, batches.front());
    const auto plan = plan_of(cut, crew, placed_at_random(graph.nodes.size(), clusters, random), traced,
                              traced && i % 3 == 1);
    check_same(expected,
               passes(
                   cut, [&](const Batch& batch) { return plan->forward(batch, training); }, batches));
  }
}

}  // namespace

TEST_CASE("partitioned: a network in clusters at random has its bits", "[partitioned]") {
  for (const std::size_t clusters : {2, 3}) {
    INFO(clusters << " clusters");
    compare(towers(6, 4, 3, true), clusters, 1, 3);
    compare(inception(true), clusters, 2, 3);
    compare(attention(), clusters, 3, 3);
    compare(often_read(), clusters, 4, 3);
  }
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    INFO("graph of seed " << seed);
    Random random(seed);
    compare(at_random(random), 1 + seed % 3, seed, 3);
  }
}

TEST_CASE("partitioned: several passes are under way at once, and go back in any order", "[partitioned]") {
  const OneThread one;
  testing::FakeHost host;
  Crew crew(host, 2, {});
  Random random(5);
  GraphNetwork network(inception(true));
  const auto plan = plan_of(network, crew, placed_at_random(network.graph()->nodes.size(), 2, random), {});
  const std::vector<Batch> batches = inputs_of(*network.graph(), 4, 9);
  const at::AutoGradMode tracked(true);
  const at::Tensor first = plan->forward(batches[0], training), second = plan->forward(batches[1], training);
  first.sum().backward();
  second.sum().backward();
  CHECK_THROWS_WITH(second.sum().backward(), Catch::Contains("backward"));
  const at::Tensor third = plan->forward(batches[0], training);
  const at::Tensor weight = network.parameters().front().tensor;
  CHECK_THROWS_WITH(torch::autograd::grad({third.sum()}, {weight}, {}, true, true),
                    Catch::Contains("gradients of gradients"));
}

TEST_CASE("partitioned: a plan sees that weights were moved", "[partitioned]") {
  const OneThread one;
  testing::FakeHost host;
  Crew crew(host, 2, {});
  Random random(5);
  GraphNetwork network(towers(4, 2, 1, false));
  const auto plan = plan_of(network, crew, placed_at_random(network.graph()->nodes.size(), 2, random), {});
  CHECK(plan->fits());
  network.parameters().back().tensor.set_data(network.parameters().back().tensor.detach().clone());
  CHECK_FALSE(plan->fits());
}

TEST_CASE("partitioned: an error on a worker comes out with its node, and the crew goes on",
          "[partitioned]") {
  const OneThread one;
  testing::FakeHost host;
  Crew crew(host, 2, {});
  Random random(5);
  GraphNetwork network(towers(6, 4, 2, false));
  const auto plan = plan_of(network, crew, placed_at_random(network.graph()->nodes.size(), 2, random), {});
  std::vector<Batch> batches = inputs_of(*network.graph(), 4, 9);
  std::vector<Batch> wrong = batches;
  wrong[0].inputs[0] = at::zeros({4, 5});
  CHECK_THROWS_WITH(plan->forward(wrong[0], training), Catch::Contains("has shape [4, 5]"));
  for (int i = 0; i < 200; ++i) {
    std::vector<std::uint16_t> worker(20);
    for (std::size_t k = 0; k < worker.size(); ++k) worker[k] = static_cast<std::uint16_t>(below(random, 2));
    Schedule schedule(worker, std::vector<double>(20, 0.0), {{3, 9}, {9, 12}}, 2);
    CHECK_THROWS_WITH(crew.run(schedule,
                               [](std::size_t job, std::size_t) {
                                 if (job == 9) throw std::runtime_error("on purpose");
                                 if (job == 12) std::abort();
                               }),
                      "on purpose");
  }
  plan->forward(batches[0], training);
}

TEST_CASE("partitioned: jobs run once, behind all that they wait for, on the worker that they are of",
          "[partitioned]") {
  const OneThread one;
  testing::FakeHost host;
  for (const std::size_t workers : {1, 2, 4}) {
    Crew crew(host, workers, {});
    Random random(static_cast<std::uint32_t>(workers));
    for (int turn = 0; turn < 400; ++turn) {
      const std::size_t jobs = 1 + below(random, 60);
      std::vector<std::uint16_t> worker(jobs);
      std::vector<double> ranks(jobs);
      std::vector<std::pair<std::size_t, std::size_t>> edges;
      for (std::size_t i = 0; i < jobs; ++i) {
        worker[i] = static_cast<std::uint16_t>(below(random, workers));
        ranks[i] = static_cast<double>(below(random, 7));
        for (std::size_t k = below(random, 4); i > 0 && k > 0; --k) edges.emplace_back(below(random, i), i);
      }
      Schedule schedule(worker, ranks, edges, workers);
      std::vector<int> done(jobs, 0);  // no atomics: what a job wrote is to be seen by those that wait for it
      std::atomic<int> wrong = 0;
      for (int again = 1; again < 4; ++again) {
        std::map<std::thread::id, std::size_t> threads;
        std::mutex mutex;
        crew.run(schedule, [&](std::size_t job, std::size_t by) {
          if (by != worker[job]) ++wrong;
          for (const auto& [from, to] : edges)
            if (to == job && done[from] != again) ++wrong;
          if (++done[job] != again) ++wrong;
          const std::lock_guard lock(mutex);
          const auto known = threads.emplace(std::this_thread::get_id(), by).first;
          if (known->second != by) ++wrong;
        });
      }
      CHECK(wrong == 0);
      CHECK(std::ranges::all_of(done, [](int count) { return count == 3; }));
    }
  }
}

TEST_CASE("partitioned: of the jobs that are ready the one with the highest rank comes first",
          "[partitioned]") {
  testing::FakeHost host;
  const OneThread one;
  Crew crew(host, 1, {});
  Schedule schedule({0, 0, 0, 0, 0}, {1.0, 5.0, 3.0, 5.0, 9.0}, {{0, 4}}, 1);
  std::vector<std::size_t> order;
  crew.run(schedule, [&](std::size_t job, std::size_t) { order.push_back(job); });
  CHECK(order == std::vector<std::size_t>{1, 3, 2, 0, 4});
}

TEST_CASE("partitioned: workers have one thread within operators and a core, whatever the run has",
          "[partitioned]") {
  testing::FakeHost host;
  const int before = at::get_num_threads();
  at::set_num_threads(2);
  at::set_num_threads(1);  // as the executor does ahead of the crew
  Crew crew(host, 2, {own_cores().front(), own_cores().back()});
  at::set_num_threads(2);  // and behind its passes
  int threads = 0, chunks = 0, cores = 0;
  Schedule schedule({1}, {0.0}, {}, 2);
  crew.run(schedule, [&](std::size_t, std::size_t) {
    threads = at::get_num_threads();
    std::atomic<int> count = 0;
    at::parallel_for(0, 1 << 20, 1, [&](std::int64_t, std::int64_t) { ++count; });
    chunks = count;
    cpu_set_t set;
    CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
    cores = CPU_COUNT(&set);
  });
  CHECK(threads == 1);
  CHECK(chunks == 1);
  CHECK(cores == 1);
  CHECK(at::get_num_threads() == 2);
  at::set_num_threads(before);
}

TEST_CASE("partitioned: workers make way for the thread that calls them", "[partitioned]") {
  const std::vector<int> cores = own_cores();
  if (cores.size() < 2) {
    WARN("one core is not two");
    return;
  }
  const auto pin = [](const std::vector<int>& to) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int core : to) CPU_SET(core, &set);
    REQUIRE(sched_setaffinity(0, sizeof set, &set) == 0);
  };
  testing::FakeHost host;
  Crew crew(host, 2, {cores[0], cores[1]});
  Schedule schedule({1}, {0.0}, {}, 2);
  for (const int own : {cores[0], cores[1], cores[0]}) {
    pin({own});
    int other = -1;
    crew.run(schedule, [&](std::size_t, std::size_t) { other = sched_getcpu(); });
    CHECK(other == (own == cores[0] ? cores[1] : cores[0]));
  }
  pin(cores);
}

TEST_CASE("partitioned: the graph of a step is that of its definition", "[partitioned]") {
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    const Graph graph = seed == 0 ? inception(true) : seed == 1 ? often_read() : at_random(random);
    const std::size_t n = graph.nodes.size();
    const Times times = estimated(graph, 4, 1);
    const StepGraph step(graph, times, 4, Weights::time);
    // Of each pair of nodes, all values of the one that the other reads.
    const auto reads = [&](std::size_t later, std::size_t earlier) {
      for (const ValueId in : graph.nodes[later].inputs)
        for (const ValueId out : graph.nodes[earlier].outputs)
          if (in != no_value && in == out) return true;
      return false;
    };
    std::set<std::pair<std::size_t, std::size_t>> expected;
    for (std::size_t a = 0; a < n; ++a) {
      expected.emplace(a, n + 1 + a);
      for (std::size_t b = 0; b < n; ++b)
        if (reads(b, a)) {
          expected.emplace(a, b);
          expected.emplace(n + 1 + b, n + 1 + a);
        }
      for (const ValueId out : graph.nodes[a].outputs)
        if (out == graph.outputs.front()) {
          expected.emplace(a, n);
          expected.emplace(n, n + 1 + a);
        }
    }
    std::set<std::pair<std::size_t, std::size_t>> found;
    for (const partition::Edge& edge : step.passes().edges) found.emplace(edge.source, edge.target);
    CHECK(found == expected);
    CHECK(found.size() == step.passes().edges.size());
    // A node has a way back where a weight is at it, or at any that it comes from.
    for (std::size_t a = 0; a < n; ++a) {
      std::set<std::size_t> reached = {a};
      bool weight = false;
      for (std::vector<std::size_t> left = {a}; !left.empty();) {
        const std::size_t node = left.back();
        left.pop_back();
        for (const ValueId in : graph.nodes[node].inputs)
          weight = weight || (in != no_value && graph.values[static_cast<std::size_t>(in)].trainable);
        for (std::size_t b = 0; b < n; ++b)
          if (reads(node, b) && reached.insert(b).second) left.push_back(b);
      }
      CHECK(step.passes().costs[n + 1 + a] == (weight ? times.backward[a] : 0.0));
      CHECK(step.passes().costs[a] == times.forward[a]);
    }
    // By time, the weights of the edges to a node are its time together.
    std::vector<double> sums(step.folded().costs.size(), 0.0);
    for (std::size_t e = 0; e < step.folded().edges.size(); ++e)
      sums[step.folded().edges[e].target] += step.folded().weights[e];
    for (std::size_t a = 0; a < sums.size(); ++a)
      if (sums[a] > 0.0) CHECK(sums[a] == Approx(step.folded().costs[a]));
  }
}

TEST_CASE("partitioned: segments are chains of one worker, and all nodes are in one", "[partitioned]") {
  for (std::uint32_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    const Graph graph = seed == 0 ? towers(4, 3, 3, true) : at_random(random);
    const std::size_t n = graph.nodes.size();
    const Dependences dependences(graph);
    const Placement placement = placed_at_random(n, 2, random);
    std::vector<bool> apart(n);
    for (std::size_t i = 0; i < n; ++i) apart[i] = below(random, 9) == 0;
    std::vector<int> seen(n, 0);
    for (const Segment& segment : segments_of(graph, dependences, placement, apart)) {
      REQUIRE(!segment.nodes.empty());
      std::set<ValueId> weights;
      for (std::size_t k = 0; k < segment.nodes.size(); ++k) {
        const std::size_t node = segment.nodes[k];
        ++seen[node];
        CHECK(placement.forward[node] == segment.forward);
        CHECK(placement.backward[node] == segment.backward);
        if (segment.nodes.size() > 1) CHECK_FALSE(apart[node]);
        std::set<ValueId> own;
        for (const ValueId in : graph.nodes[node].inputs)
          if (in != no_value && graph.values[static_cast<std::size_t>(in)].initializer.defined())
            own.insert(in);
        for (const ValueId id : own) CHECK(weights.insert(id).second);
        if (k == 0) continue;
        for (const ValueId in : graph.nodes[node].inputs)
          if (in != no_value && own.count(in) == 0)
            CHECK(std::ranges::count(graph.nodes[segment.nodes[k - 1]].outputs, in) == 1);
        for (std::size_t other = 0; other < n; ++other)
          for (const ValueId in : graph.nodes[other].inputs)
            if (other != node)
              CHECK(std::ranges::count(graph.nodes[segment.nodes[k - 1]].outputs, in) * (in >= 0) == 0);
      }
    }
    CHECK(std::ranges::all_of(seen, [](int count) { return count == 1; }));
  }
}

TEST_CASE("partitioned: what is predicted is between the least possible and one thread", "[partitioned]") {
  const partition::Algorithm all[] = {partition::Algorithm::wb_libra, partition::Algorithm::hdrf,
                                      partition::Algorithm::random, partition::Algorithm::metis,
                                      partition::Algorithm::heft};
  for (const Graph& graph : {towers(64, 8, 4, false), inception(true)}) {
    const Times times = estimated(graph, 32, 1);
    const StepGraph step(graph, times, 32, Weights::time);
    const std::vector<bool> none(graph.nodes.size(), false);
    const partition::Tasks tasks = partition::tasks_of(step.passes());
    for (const partition::Algorithm each : all) {
      const Overheads free;
      const Cut made = cut({graph, step, times, none, free}, {.algorithm = each, .clusters = 2});
      const double found =
          predicted(segments_of(graph, step.dependences(), made.placement, none), step, times, {}, 2);
      CHECK(found >= tasks.bound(2) * (1.0 - 1e-9));
      CHECK(found <= times.total() * (1.0 + 1e-9));
      CHECK(made.quality.has_value() == (each != partition::Algorithm::heft));
    }
    const std::vector<Cluster> first(graph.nodes.size(), 0);
    const auto chain = segments_of(graph, step.dependences(), {first, first}, none);
    CHECK(predicted(chain, step, times, {}, 2) == Approx(times.total()));
    CHECK(predicted(chain, step, times, {.forward = 1.0, .backward = 2.0, .latency = 50.0}, 2) ==
          Approx(times.total() + 3.0 * static_cast<double>(chain.size())));
  }
  // Forward and backward are not at once, wherever they are: the loss is between.
  const Graph branches = inception(true);
  const Times their = estimated(branches, 32, 1);
  const StepGraph its(branches, their, 32, Weights::time);
  const std::vector<Cluster> here(branches.nodes.size(), 0), there(branches.nodes.size(), 1);
  CHECK(predicted(
            segments_of(branches, its.dependences(), {here, there}, std::vector<bool>(branches.nodes.size())),
            its, their, {}, 2) == Approx(their.total()));
  // Eight towers, two workers: half of the time, but for what comes before and after.
  const Graph graph = towers(64, 8, 4, false);
  const Times times = estimated(graph, 32, 1);
  const StepGraph step(graph, times, 32, Weights::time);
  const std::vector<bool> none(graph.nodes.size(), false);
  const Cut made =
      cut({graph, step, times, none, assumed}, {.algorithm = partition::Algorithm::heft, .clusters = 2});
  CHECK(
      predicted(segments_of(graph, step.dependences(), made.placement, std::vector<bool>(graph.nodes.size())),
                step, times, {}, 2) < 0.62 * times.total());
}

namespace {

/// The way that a pass on this thread goes.
Way way_of(const ForwardPass& forward) {
  if (forward) return Way::clusters;
  return at::get_num_threads() == 1 ? Way::alone : Way::threads;
}

/// A bench that lets the executor make the passes.
class Passes final : public wavelet::PlainBench {
 public:
  using PlainBench::grade;
  using PlainBench::PlainBench;
  /// Of a trial: each way may be made slower.
  Graded grade(const Batch& batch, const ForwardContext& pass, const ForwardPass& forward) override {
    const Way way = way_of(forward);
    ++tried[static_cast<std::size_t>(way)];
    wavelet::sleep_for(delays[static_cast<std::size_t>(way)]);
    Graded graded{forward ? forward(batch, pass) : network().forward(batch, pass), {}};
    graded.loss = this->loss().forward(graded.output, batch);
    return graded;
  }
  void backward(StepWork& work, std::size_t micro, const ForwardPass& forward) override {
    const at::AutoGradMode tracked(true);
    threads = at::get_num_threads();
    taken = way_of(forward);
    const Batch& batch = work.micros[micro];
    const at::Tensor output =
        forward ? forward(batch, work.pass(micro)) : network().forward(batch, work.pass(micro));
    by_executor += forward ? 1 : 0;
    const at::Tensor loss = this->loss().forward(output, batch);
    loss.backward(at::full({}, work.share(micro), loss.options()));
  }
  int by_executor = 0, threads = 0;
  Way taken = Way::threads;  ///< by the last pass
  std::array<int, ways> tried = {};
  std::array<double, ways> delays = {};  ///< seconds
};

struct Trained {
  std::vector<at::Tensor> weights, buffers;
};

std::vector<Batch> batches_for(const Graph& graph, std::size_t count) {
  std::vector<Batch> made;
  for (std::size_t i = 0; i < count; ++i) {
    Batch batch = inputs_of(graph, 5, static_cast<unsigned>(i))[0];
    at::Generator random = at::detail::createCPUGenerator(i);
    batch.target = at::randn({5, 3}, random, at::kFloat);
    made.push_back(batch);
  }
  return made;
}

/// By hand where there are no algorithms; else with one after the other.
Trained train(Graph graph, int steps, const std::vector<std::string>& algorithms,
              int* by_executor = nullptr) {
  for (GraphValue& value : graph.values)
    if (value.initializer.defined()) value.initializer = value.initializer.detach().clone();
  wavelet::Yard yard(std::make_unique<GraphNetwork>(std::move(graph)), {});
  auto& network = dynamic_cast<GraphNetwork&>(*yard.network);
  Passes bench(network, *yard.optimizer);
  std::vector<Batch> data = batches_for(*network.graph(), 8);
  const std::size_t parts = std::max<std::size_t>(algorithms.size(), 1);
  const std::size_t micros = steps < 100 ? 2 : 1;
  int done = 0;
  for (std::size_t part = 0; part < parts; ++part) {
    std::unique_ptr<Executor> executor;
    if (!algorithms.empty()) {
      executor = test::make<Executor>(
          "partitioned",
          test::table({{"when", "always"}, {"algorithm", algorithms[part]}, {"clusters", std::int64_t{2}}}));
      executor->set_host(yard.host);
      executor->open(bench);
    }
    const int until = steps * static_cast<int>(part + 1) / static_cast<int>(parts);
    for (; done < until; ++done) {
      StepWork work = wavelet::work_of(
          std::span(data).subspan(static_cast<std::size_t>(done) % 4 * micros, micros), done);
      if (executor) {
        executor->step(bench, work);
        continue;
      }
      for (std::size_t i = 0; i < micros; ++i) bench.backward(work, i, {});
      bench.update({});
    }
    if (executor) executor->settle(bench, Executor::Pause::swap);
  }
  if (by_executor != nullptr) *by_executor = bench.by_executor;
  Trained result{yard.weights(), {}};
  for (const NamedTensor& each : network.buffers()) result.buffers.push_back(each.tensor.clone());
  return result;
}

}  // namespace

TEST_CASE(
    "partitioned: a thousand steps end with the bits of one thread, also where the algorithm is swapped",
    "[partitioned]") {
  const struct {
    Graph graph;
    int steps;
  } cases[] = {{block_and_towers(), 1000}, {inception(true), 60}, {often_read(), 60}, {attention(), 60}};
  for (const auto& [graph, steps] : cases) {
    const Trained expected = train(graph, steps, {});
    CHECK(std::ranges::all_of(expected.weights,
                              [](const at::Tensor& each) { return each.isfinite().all().item<bool>(); }));
    std::vector<std::vector<std::string>> all = {{"heft", "metis", "wb_libra", "metis"}};
    if (steps < 100) all.push_back({"random"});
    for (const std::vector<std::string>& algorithms : all) {
      int by_executor = 0;
      const Trained found = train(graph, steps, algorithms, &by_executor);
      CHECK(by_executor == (steps < 100 ? 2 : 1) * steps);
      bool same = true;
      for (std::size_t i = 0; i < expected.weights.size(); ++i)
        same = same && same_bits(expected.weights[i], found.weights[i]);
      for (std::size_t i = 0; i < expected.buffers.size(); ++i)
        same = same && same_bits(expected.buffers[i], found.buffers[i]);
      CHECK(same);
    }
  }
}

namespace {

/// A run of some steps on so many threads, and what the executor did; without options by hand.
struct Session {
  Session(Graph graph, const std::optional<Table>& options, int run_threads,
          std::array<double, ways> delays = {}, const State* before = nullptr, int steps = 4)
      : yard(std::make_unique<GraphNetwork>(own(std::move(graph))), {}),
        bench(*yard.network, *yard.optimizer) {
    bench.delays = delays;
    at::set_num_threads(run_threads);
    std::vector<Batch> data = batches_for(*dynamic_cast<GraphNetwork&>(*yard.network).graph(), 2);
    const auto executor = options ? test::make<Executor>("partitioned", *options) : nullptr;
    if (executor) {
      executor->set_host(yard.host);
      if (before != nullptr) executor->load(StateReader(*before));
      executor->open(bench);
    }
    for (int i = 0; i < steps; ++i) {
      StepWork work = wavelet::work_of(data, i);
      if (executor) {
        executor->step(bench, work);
        continue;
      }
      for (std::size_t micro = 0; micro < data.size(); ++micro) bench.backward(work, micro, {});
      bench.update({});
    }
    if (executor) {
      StateWriter writer(state);
      executor->save(writer);
      executor->settle(bench, Executor::Pause::end);
    }
    after = at::get_num_threads();
    at::set_num_threads(1);
    result.weights = yard.weights();
    for (const NamedTensor& each : yard.network->buffers()) result.buffers.push_back(each.tensor.clone());
  }
  static Graph own(Graph graph) {
    for (GraphValue& value : graph.values)
      if (value.initializer.defined()) value.initializer = value.initializer.detach().clone();
    return graph;
  }

  wavelet::Yard yard;
  Passes bench;
  State state;
  int after = 0;  ///< threads of the run, at the end
  Trained result;
};

/// Says so where no times could be had, for which the check is left out.
bool was_disturbed(const Session& session) {
  const bool disturbed = session.yard.host.logged("by estimates, as other programs had the cores");
  if (disturbed) WARN("skipped: other programs had the cores during the trial");
  return disturbed;
}

bool same_bits(const Trained& a, const Trained& b) {
  const auto same = [](const std::vector<at::Tensor>& x, const std::vector<at::Tensor>& y) {
    return std::ranges::equal(x, y, [](const at::Tensor& m, const at::Tensor& n) { return same_bits(m, n); });
  };
  return same(a.weights, b.weights) && same(a.buffers, b.buffers);
}

}  // namespace

TEST_CASE("partitioned: of three ways that were tried the fastest is taken, by this run and by later ones",
          "[partitioned][quiet]") {
  if (own_cores().size() < 2) return;
  const test::TempFolder folder;
  const Graph wide = towers(64, 8, 4, false);
  constexpr const char* done[ways] = {"runs in clusters", "runs on one thread", "left to eager"};
  for (const Way fast : {Way::clusters, Way::alone, Way::threads}) {
    const auto its = static_cast<std::size_t>(fast);
    INFO(done[its]);
    const test::CacheHome kept(folder.path(done[its]));
    std::array<double, ways> delays = {0.15, 0.15, 0.15};
    delays[its] = 0.0;
    const Session first(wide, Table(), 2, delays);
    if (was_disturbed(first)) continue;
    CHECK(first.bench.taken == fast);
    CHECK(first.bench.threads == (fast == Way::threads ? 2 : 1));
    CHECK(first.after == 2);
    CHECK(std::ranges::all_of(first.bench.tried, [](int count) { return count >= 2; }));
    CHECK(first.yard.host.journal_entries.back().first == done[its]);
    CHECK(first.yard.host.logged("a pass took"));
    CHECK(first.yard.host.metrics.at("partitioned/way") == std::vector<double>{static_cast<double>(its)});
    for (const char* name : {"clusters_us", "one_thread_us", "run_threads_us"})
      CHECK(first.yard.host.metrics.at(std::string("partitioned/") + name).size() == 1);
    // Others that are as fast as may be: what is kept counts.
    delays = {0.0, 0.0, 0.0};
    delays[its] = 0.15;
    const Session later(wide, Table(), 2, delays);
    CHECK(later.bench.taken == fast);
    CHECK(later.bench.tried == std::array<int, ways>{});
    CHECK(later.yard.host.logged("an earlier run on this machine chose"));
    // A run that goes on somewhere else goes on so; with other options it tries anew.
    const test::CacheHome elsewhere(folder.path("elsewhere" + std::to_string(its)));
    const Session resumed(wide, Table(), 2, delays, &first.state);
    CHECK(resumed.bench.taken == fast);
    CHECK(resumed.bench.tried == std::array<int, ways>{});
    if (fast != Way::threads) continue;
    const Session other(wide, test::table({{"algorithm", "metis"}}), 2, delays, &first.state);
    CHECK(other.bench.taken != fast);
  }
}

TEST_CASE("partitioned: a trial leaves no trace, and a run has the bits of the threads that it chose",
          "[partitioned][quiet]") {
  const test::TempFolder folder;
  const Graph graph = inception(true);
  for (const Way fast : {Way::alone, Way::threads}) {
    const test::CacheHome kept(folder.path(fast == Way::alone ? "alone" : "threads"));
    std::array<double, ways> delays = {0.15, 0.15, 0.15};
    delays[static_cast<std::size_t>(fast)] = 0.0;
    const Session tried(graph, Table(), 2, delays);
    if (was_disturbed(tried)) continue;
    CHECK(tried.bench.tried[static_cast<std::size_t>(fast)] >= 2);
    // Where others have the cores, two threads may be slower than any delay.
    const bool one = tried.bench.taken != Way::threads;
    CHECK((one || fast == Way::threads));
    const Session plain(graph, std::nullopt, one ? 1 : 2);
    CHECK(same_bits(tried.result, plain.result));
  }
}

namespace {

/// Other programs that have every core of the process, three on each, for as long as this is there.
class BusyPrograms {
 public:
  BusyPrograms() {
    for (const int core : own_cores())
      for (int i = 0; i < 3; ++i) {
        const pid_t made = ::fork();
        if (made == 0) {
          ::prctl(PR_SET_PDEATHSIG, SIGKILL);
          cpu_set_t cores;
          CPU_ZERO(&cores);
          CPU_SET(core, &cores);
          ::sched_setaffinity(0, sizeof cores, &cores);
          for (volatile int spun = 0;;) spun = spun + 1;
        }
        programs_.push_back(made);
      }
  }
  ~BusyPrograms() {
    for (const pid_t each : programs_) {
      ::kill(each, SIGKILL);
      ::waitpid(each, nullptr, 0);
    }
  }
  BusyPrograms(const BusyPrograms&) = delete;
  BusyPrograms& operator=(const BusyPrograms&) = delete;

 private:
  std::vector<pid_t> programs_;
};

}  // namespace

TEST_CASE("partitioned: what threads waited for a core is read for each of them", "[partitioned]") {
  const test::TempFolder folder;
  for (const auto& [task, text] :
       {std::pair{"7", "5000000000 1500000000 9\n"}, {"8", "1 250000000 2\n"}, {"9", ""}}) {
    std::filesystem::create_directories(folder.path(task));
    std::ofstream(folder.path(std::string(task) + "/schedstat")) << text;
  }
  CHECK(lib::seconds_waited(folder.path("")) == Approx(1.75));
  CHECK(lib::seconds_waited(folder.path("nothing")) == 0.0);
}

TEST_CASE("partitioned: what was timed beside other programs is timed again, a few times at most",
          "[partitioned]") {
  const struct {
    std::vector<double> shares;  ///< of each attempt
    int attempts;
    bool is_quiet;
  } cases[] = {
      {{0.0}, 1, true}, {{0.9, 0.3, 0.0}, 3, true}, {{0.9, 0.0}, 2, true}, {{0.9, 0.9, 0.9, 0.0}, 3, false}};
  for (const auto& [shares, attempts, is_quiet] : cases) {
    double waited = 12.0;
    std::size_t calls = 0;
    const lib::Disturbance found = lib::measure_undisturbed(
        [&] {
          wavelet::sleep_for(0.02);
          waited += 0.02 * shares.at(calls++);
        },
        [&] { return waited; });
    CHECK(found.attempts == attempts);
    CHECK(found.is_quiet == is_quiet);
    CHECK(calls == static_cast<std::size_t>(attempts));
    CHECK(found.share <= shares[calls - 1] + 1e-9);
  }
}

TEST_CASE("partitioned: beside busy programs estimates decide, for later runs, too, and the log says so",
          "[partitioned]") {
  const test::TempFolder folder;
  const test::CacheHome kept(folder.path("choices"));
  const Graph wide = towers(256, 8, 4, false);
  std::optional<Session> first;
  {
    const BusyPrograms others;
    first.emplace(wide, Table(), 2);
  }
  CHECK(first->yard.host.logged("other programs had the cores during the trial, which was made 3 times",
                                LogLevel::warning));
  CHECK(first->yard.host.logged("by estimates, as other programs had the cores"));
  CHECK(first->bench.tried[static_cast<std::size_t>(Way::threads)] >= 6);
  CHECK(first->yard.host.metrics.count("partitioned/one_thread_us") == 0);
  CHECK(first->after == 2);
  const Session later(wide, Table(), 2);
  CHECK(later.bench.tried == std::array<int, ways>{});
  CHECK(later.bench.taken == first->bench.taken);
  CHECK(same_bits(later.result, first->result));
}

TEST_CASE("partitioned: a chain is not cut, nor is what cannot be tried or kept", "[partitioned][quiet]") {
  const test::TempFolder folder;
  const test::CacheHome kept(folder.path("choices"));
  const Graph chain = towers(64, 1, 6, false);
  {
    const Session session(chain, Table(), 2, {0.0, 0.15, 0.0});
    if (!was_disturbed(session)) CHECK(session.bench.taken == Way::threads);
    CHECK(session.bench.tried[0] == 0);
    CHECK(session.bench.tried[1] >= 2);
    CHECK(session.yard.host.logged("clusters were predicted to gain nothing"));
    CHECK(session.yard.host.metrics.count("partitioned/clusters_us") == 0);
  }
  {
    const Session session(chain, Table(), 1);  // one thread: estimates decide
    CHECK(session.bench.taken == Way::alone);
    CHECK(session.bench.by_executor == 0);
    CHECK(session.yard.host.journal_entries.front().first == "left to eager");
    CHECK(session.bench.tried == std::array<int, ways>{});
  }
  {
    const test::CacheHome nowhere("/proc/nowhere");
    const Session session(chain, Table(), 2);
    CHECK(session.yard.host.logged("cannot be written", LogLevel::warning));
    CHECK(session.yard.host.journal_entries.front().first == "left to eager");
    CHECK(session.bench.taken == Way::threads);
  }
  if (own_cores().size() < 2) return;
  const Session session(towers(64, 8, 4, false), test::table({{"clusters", std::int64_t{64}}}), 1, {},
                        nullptr, 20);
  CHECK(session.bench.threads == 1);
  CHECK(session.yard.host.logged("it is cut"));
  CHECK(session.yard.host.logged("metis"));
  CHECK(session.yard.host.logged("random"));
  CHECK((session.yard.host.logged("tried: a pass took") || session.yard.host.logged("predicted to take")));
  CHECK(session.yard.host.logged("executor.clusters is 64, and there are", LogLevel::warning));
}

TEST_CASE("partitioned: choices are kept as they are, and the first one counts", "[partitioned]") {
  const test::TempFolder folder;
  const test::CacheHome kept(folder.path("choices"));
  const ChoiceFolder choices;
  const double none = Choice().microseconds[0];
  const Choice one = fastest({none, 812.25, 811.75}), two = fastest({1.0 / 3.0, 2.0, 3.0});
  CHECK(one.way == Way::threads);
  CHECK(two.way == Way::clusters);
  CHECK(fastest({5.0, 5.0, 7.0}).way == Way::clusters);
  for (const Choice& each : {one, two}) CHECK(read_choice(text_of(each)) == each);
  CHECK_FALSE(choices.find("a"));
  CHECK(choices.keep("a", one) == one);
  CHECK(choices.keep("a", two) == one);
  CHECK(choices.keep("b", two) == two);
  CHECK(choices.find("a") == one);
  const std::string text = text_of(two);
  for (const std::string& wrong :
       {std::string(), std::string("trainyard partitioned 2\nalone\n"), text.substr(0, text.size() / 2)}) {
    CHECK_FALSE(read_choice(wrong));
    std::ofstream(choices.file_of("a")) << wrong;
    CHECK_FALSE(choices.find("a"));
    CHECK(choices.keep("a", two) == two);
  }
  // Graphs are told apart by what they compute.
  std::set<std::string> outlines;
  for (const Graph& graph : {towers(64, 8, 4, false), towers(64, 8, 4, true), towers(32, 8, 4, false),
                             towers(64, 4, 4, false), inception(true), inception(false), attention()})
    outlines.insert(outline_of(graph));
  CHECK(outlines.size() == 7);
  CHECK(outline_of(attention()) == outline_of(attention()));
}

TEST_CASE("partitioned: each rank has cores of its own, or none has", "[partitioned]") {
  const std::vector<int> cores = {1, 3, 4, 6, 7};
  CHECK((cores_of_rank(cores, 2, 0, 2) == std::vector<int>{1, 3}));
  CHECK((cores_of_rank(cores, 2, 1, 2) == std::vector<int>{4, 6}));
  CHECK((cores_of_rank(cores, 5, 0, 1) == cores));
  CHECK(cores_of_rank(cores, 2, 2, 3).empty());
}

TEST_CASE("partitioned: what a segment and another worker cost is about what they do cost",
          "[partitioned][quiet]") {
  const OneThread one;
  testing::FakeHost host;
  const std::vector<int> cores = own_cores();
  Crew crew(host, 2, cores.size() < 2 ? std::vector<int>() : std::vector<int>{cores[0], cores[1]});
  Crew lone(host, 1, {});
  const Overheads found = measured_overheads(crew);
  CHECK(found.latency > 0.0);
  CHECK(measured_overheads(lone).latency == 0.0);
  // Another network, whose nodes are one segment, and a segment each.
  GraphNetwork whole(towers(4, 1, 12, false)), apart(towers(4, 1, 12, false));
  const std::size_t nodes = whole.graph()->nodes.size();
  const std::vector<Cluster> first(nodes, 0);
  std::vector<std::uint32_t> once(8, 1);
  const Traced reads{std::vector<std::vector<std::uint32_t>>(nodes, once), std::vector<bool>(nodes, false)};
  const auto joined = plan_of(whole, crew, {first, first}, reads, true);
  const auto single = plan_of(apart, crew, {first, first}, reads, false);
  const std::vector<Batch> batches = inputs_of(*whole.graph(), 4, 9);
  const at::AutoGradMode tracked(true);
  std::array<double, 2> least = {1e9, 1e9};
  for (int turn = 0; turn < 60; ++turn)
    for (const std::size_t which : {0, 1}) {
      const auto begin = std::chrono::steady_clock::now();
      (which == 0 ? joined : single)->forward(batches[0], training).sum().backward();
      least[which] = std::min(
          least[which],
          std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
    }
  const double each = (least[1] - least[0]) / static_cast<double>(nodes - 1);
  INFO("measured " << found.forward << " and " << found.backward << " us, here " << each);
  CHECK(found.forward + found.backward > each / 4.0);
  CHECK(found.forward + found.backward < each * 4.0);
}

TEST_CASE("partitioned: a network without a graph is refused", "[partitioned]") {
  class Opaque final : public Network {
   public:
    at::Tensor forward(const Batch&, const ForwardContext&) override { return {}; }
    std::vector<NamedTensor> parameters() const override { return {{"w", weight}}; }
    std::vector<NamedTensor> buffers() const override { return {}; }
    std::vector<std::int64_t> output_shape() const override { return {3}; }
    void to(at::Device) override {}
    at::Tensor weight = at::zeros({3}).set_requires_grad(true);
  };
  wavelet::Yard yard(std::make_unique<Opaque>(), {});
  Passes bench(*yard.network, *yard.optimizer);
  const auto executor = test::make<Executor>("partitioned");
  executor->set_host(yard.host);
  CHECK_THROWS_WITH(executor->open(bench), Catch::Contains("the model has no graph"));
}

}  // namespace partitioned_tests
