// ops: patterns in curves that were made up, the timer with a clock of its own, the database, and widths of networks.
#include <cmath>
#include <functional>
#include <random>
#include <set>

#include <catch2/catch.hpp>

#include <trainyard/error.hpp>
#include <trainyard/graph/builder.hpp>
#include <trainyard/graph/network.hpp>

#include "plugins/tool/ops/advice.hpp"
#include "plugins/tool/ops/applied.hpp"
#include "plugins/tool/ops/curve.hpp"
#include "plugins/tool/ops/database.hpp"
#include "plugins/tool/ops/findings.hpp"
#include "plugins/tool/ops/latency.hpp"
#include "plugins/tool/ops/network_times.hpp"
#include "plugins/tool/ops/runnable.hpp"
#include "plugins/tool/ops/sweep.hpp"
#include "plugins/tool/ops/timer.hpp"

namespace ops_test {

using namespace trainyard;
using namespace ops;

namespace {

/// What the timer says of a machine whose every call has 3 % noise, and of which 5 % take 1.7 times as long.
Curve timed_curve(std::int64_t last, std::mt19937_64& random,
                  const std::function<double(std::int64_t)>& microseconds) {
  std::normal_distribution<double> noise(1.0, 0.03);
  std::uniform_real_distribution<double> chance;
  double wall = 0.0;
  std::vector<std::function<void()>> calls;
  for (std::int64_t x = 1; x <= last; ++x)
    calls.emplace_back(
        [&, x] { wall += 1e-6 * microseconds(x) * noise(random) * (chance(random) < 0.05 ? 1.7 : 1.0); });
  const auto now = [&] { return wall; };
  const std::vector<Timing> timings =
      time_calls(calls, {.rounds = 9, .least_seconds = 0.0, .before_call = {}}, {now, now},
                 RandomStream(1, "test"), [] { return false; });
  Curve curve;
  for (std::int64_t x = 1; x <= last; ++x)
    curve.push_back({x, timings[static_cast<std::size_t>(x - 1)].least});
  return curve;
}

double steps(std::int64_t x, std::int64_t width) {
  return std::ceil(static_cast<double>(x) / static_cast<double>(width));
}

std::set<std::int64_t> found_widths(const Staircase& stairs) {
  std::set<std::int64_t> widths;
  for (const Staircase::Step& each : stairs.steps)
    if (each.width > 1) widths.insert(each.width);
  return widths;
}

}  // namespace

TEST_CASE("staircases of 200 made-up curves have the width that they were made with, and lines have none",
          "[ops]") {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> uniform;
  const std::vector<std::int64_t> widths = {4, 8, 16, 24, 32, 64};
  int right = 0, lines_with_steps = 0, lines = 0, all = 0;
  for (int i = 0; i < 200; ++i) {
    const double base = 10.0 + 30.0 * uniform(random);
    std::set<std::int64_t> truth;
    std::function<double(std::int64_t)> time;
    if (i % 4 == 3) {
      const double slope = 0.5 + 4.0 * uniform(random);
      time = [=](std::int64_t x) { return base + slope * static_cast<double>(x); };
      ++lines;
    } else if (i % 4 == 2) {
      const double low = 5.0 + 10.0 * uniform(random), high = 100.0 + 100.0 * uniform(random);
      time = [=](std::int64_t x) { return base + low * steps(x, 8) + high * steps(x, 64); };
      truth = {8, 64};
    } else {
      const std::int64_t width = widths[static_cast<std::size_t>(i / 4 + i % 4) % widths.size()];
      const double height = (2.0 + 3.0 * uniform(random)) * static_cast<double>(width);
      time = [=](std::int64_t x) { return base + height * steps(x, width); };
      truth = {width};
    }
    const std::set<std::int64_t> found = found_widths(fit_staircase(timed_curve(160, random, time)));
    ++all;
    right += found == truth ? 1 : 0;
    lines_with_steps += truth.empty() && !found.empty() ? 1 : 0;
    if (found != truth) WARN("curve " << i << " has other widths");
  }
  CHECK(lines_with_steps == 0);
  CHECK(right >= 196);
  CHECK(all == 200);
  CHECK(lines == 50);
}

TEST_CASE("a staircase has the base and the height that it was made with", "[ops]") {
  std::mt19937_64 random(3);
  const Curve curve = timed_curve(160, random, [](std::int64_t x) { return 20.0 + 63.0 * steps(x, 16); });
  const Staircase stairs = fit_staircase(curve);
  REQUIRE(found_widths(stairs) == std::set<std::int64_t>{16});
  // The least of nine readings lies 1.485 deviations below their mean.
  const double low = 1.0 - 0.03 * 1.485;
  CHECK(stairs.steps.back().height == Approx(63e-6 * low).epsilon(0.03));
  CHECK(stairs.at(16) == Approx(83e-6 * low).epsilon(0.03));
}

TEST_CASE("jumps that stay are found, outliers are not, and cliffs are told from steps", "[ops]") {
  Curve curve;
  for (std::int64_t x = 1; x <= 96; ++x) {
    double time = 18.0 + 62.0 * steps(x, 16);
    if (x >= 41) time *= 1.6;
    if (x == 10) time *= 1.7;
    curve.push_back({x, 1e-6 * time});
  }
  std::vector<std::int64_t> explained, cliffs;
  for (const Jump& each : jumps_of(curve, fit_staircase(curve), 0.1))
    (each.explained ? explained : cliffs).push_back(each.x);
  CHECK(explained == std::vector<std::int64_t>{17, 33, 49, 65, 81});
  CHECK(cliffs == std::vector<std::int64_t>{41});
}

TEST_CASE("less work that takes more time is found with where it begins and ends", "[ops]") {
  Curve curve;
  for (std::int64_t x = 1; x <= 40; ++x)
    curve.push_back(
        {x, 1e-6 * (x < 27 ? 8.5 * static_cast<double>(x) : 142.0 + 0.1 * static_cast<double>(x))});
  const std::vector<Inversion> found = inversions_of(curve);
  REQUIRE(found.size() == 1);
  CHECK(found[0].from == 18);  // 153 us and more, of 144.7
  CHECK(found[0].to == 27);
  CHECK(found[0].ratio == Approx(26 * 8.5 / 144.7));
  Curve growing;
  for (std::int64_t x = 1; x <= 40; ++x) growing.push_back({x, 1e-6 * static_cast<double>(x)});
  CHECK(inversions_of(growing).empty());
}

TEST_CASE("the timer visits all calls in each round and counts the least", "[ops]") {
  // A machine that becomes half as fast for a while, and a second thread that works beside the second call.
  double wall = 0.0, processor = 0.0;
  int calls = 0;
  std::vector<int> order;
  const auto cost = [&](int which, double seconds, double share) {
    return [&, which, seconds, share] {
      const double speed = ++calls > 300 && calls < 600 ? 2.0 : 1.0;
      if (order.empty() || order.back() != which) order.push_back(which);
      wall += seconds * speed;
      processor += seconds * speed * share;
    };
  };
  const std::vector<std::function<void()>> work = {cost(0, 1e-3, 1.0), cost(1, 2e-3, 1.5),
                                                   cost(2, 1e-4, 0.5)};
  const ops::Clock clock{[&] { return wall; }, [&] { return processor; }};
  const std::vector<Timing> timings =
      time_calls(work, {.rounds = 9, .least_seconds = 5e-3, .before_call = {}}, clock,
                 RandomStream(1, "test"), [] { return false; });
  REQUIRE(timings.size() == 3);
  CHECK(timings[0].least == Approx(1e-3));
  CHECK(timings[1].least == Approx(2e-3));
  CHECK(timings[2].least == Approx(1e-4));
  CHECK(timings[0].share == Approx(1.0));
  CHECK(timings[1].share == Approx(1.5));
  CHECK(timings[2].share == Approx(0.5));
  CHECK(timings[0].median >= timings[0].lower);
  // Rounds are shuffled: not each is 0, 1, 2.
  bool shuffled = false;
  for (std::size_t i = 3; i + 1 < order.size(); ++i) shuffled = shuffled || order[i + 1] == order[i] - 1;
  CHECK(shuffled);

  int asked = 0;
  CHECK(time_calls(work, {}, clock, RandomStream(1, "test"), [&] { return ++asked > 5; }).empty());
}

TEST_CASE("calls whose medians are far from the least make a sweep noisy", "[ops]") {
  std::vector<Timing> timings(20, Timing{.least = 1.0, .lower = 1.0, .median = 1.1});
  timings[0].median = timings[1].median = 1.3;
  CHECK(!noisy(timings));
  timings[2].median = 1.3;
  CHECK(noisy(timings));
}

TEST_CASE("a database is written, read and kept apart by machine", "[ops]") {
  Machine here{"aa", {{"processor", "one"}}}, there{"bb", {{"processor", "two"}}};
  Database database(here);
  const Operator point{.out = 17, .type = "bf16", .phase = "training", .threads = 2};
  Row row{"cout",           point, {.keeps_pages = false, .flushes = true}, {1.25e-4, 1.5e-4, 2e-4, 0.995}, 9,
          {123456.0, 789.0}};
  database.add(row);
  row.sweep = "block";
  database.add(row);
  row.timing.least = 1e-4;
  database.add(row);
  REQUIRE(database.rows().size() == 2);

  Database again(here);
  again.read(database.text(), "x.csv");
  REQUIRE(again.rows().size() == 2);
  CHECK(again.text() == database.text());
  const Row* found = again.find("cout", point, row.conditions);
  REQUIRE(found != nullptr);
  CHECK(found->timing.least == 1.25e-4);
  CHECK(found->timing.share == 0.995);
  CHECK(found->work.multiply_adds == 123456.0);
  CHECK(again.find("cout", point, {}) == nullptr);

  Database other(there);
  other.read(database.text(), "x.csv");
  CHECK(other.rows().empty());
  CHECK(other.others() == 2);
  other.add({"cout", point, {}, {1e-6, 1e-6, 1e-6, 1.0}, 9, {}});
  Database back(here);
  back.read(other.text(), "x.csv");
  CHECK(back.rows().size() == 2);
  CHECK(back.others() == 1);

  // Files of two machines, one behind the other and one of them twice, are one database on either.
  const std::string both = database.text() + other.text() + database.text();
  for (const auto& [machine, own, others] : {std::tuple(here, 2U, 1U), std::tuple(there, 1U, 2U)}) {
    Database merged(machine), saved(machine);
    merged.read(both, "both.csv");
    CHECK((merged.rows().size() == own && merged.others() == others));
    saved.read(merged.text(), "both.csv");
    CHECK(saved.text() == merged.text());
  }

  const std::string text = database.text();
  CHECK_THROWS_WITH(back.read("a,b\n", "x.csv"), Catch::Contains("x.csv:1: expected the columns"));
  CHECK_THROWS_WITH(back.read(text + "cout,conv\n", "x.csv"), Catch::Contains("x.csv:5: has 2 cells"));
  std::string bad = text;
  bad.replace(bad.find("conv,1,") + 5, 1, "one");
  CHECK_THROWS_WITH(back.read(bad, "x.csv"),
                    Catch::Contains("x.csv:3: column 3 is \"one\": expected a number"));
}

TEST_CASE("what operators compute and move is what their shapes say", "[ops]") {
  const auto work = [](const Operator& point) { return work_of(graph_of(point), point); };
  CHECK(work({}).multiply_adds == 28.0 * 28 * 9 * 64 * 64);
  CHECK(work({.batch = 2, .stride = 2}).multiply_adds == 2.0 * 14 * 14 * 9 * 64 * 64);
  CHECK(work({.groups = 64}).multiply_adds == 28.0 * 28 * 9 * 64);
  CHECK(work({.op = "linear", .batch = 32, .size = 1, .in = 256, .out = 10, .kernel = 1}).multiply_adds ==
        32.0 * 256 * 10);
  CHECK(work({.op = "relu"}).bytes == 2.0 * 4 * 28 * 28 * 64);
  CHECK(work({.op = "relu", .type = "bf16"}).bytes == 2.0 * 2 * 28 * 28 * 64);
  for (const std::string& op : blocks()) CHECK(work({.op = op}).bytes > 0.0);
  CHECK_THROWS_AS(graph_of({.op = "nothing"}), ConfigError);
}

TEST_CASE("every operator runs in every pass and format that it is given for", "[ops]") {
  std::vector<Operator> points = {{.size = 8, .in = 8, .out = 8},
                                  {.size = 8, .in = 8, .out = 8, .groups = 8},
                                  {.op = "linear", .batch = 4, .size = 1, .in = 8, .out = 8, .kernel = 1}};
  for (const auto* names : {&blocks(), &activations()})
    for (const std::string& op : *names) points.push_back({.op = op, .size = 8, .in = 8, .out = 8});
  for (Operator point : points) {
    for (const char* phase : {"forward", "training"}) {
      point.phase = phase;
      INFO(point.op << " " << phase);
      CHECK_NOTHROW(prepare(point).call());
    }
    point.type = "bf16";
    point.phase = "forward";
    CHECK_NOTHROW(prepare(point).call());
  }
  for (const char* type : {"fp32", "bf16", "int8"}) {
    Operator point{.size = 8, .in = 8, .out = 8, .type = type, .library = "onednn"};
    if (point.type == "bf16" && !__builtin_cpu_supports("avx512bw"))
      CHECK_THROWS_WITH(prepare(point), Catch::Contains("oneDNN has no conv of bf16 on this processor"));
    else
      CHECK_NOTHROW(prepare(point).call());
  }
  CHECK_NOTHROW(prepare({.size = 8, .in = 3, .out = 8, .phase = "first"}).call());
  CHECK_THROWS_WITH(prepare({.op = "relu", .library = "onednn"}), Catch::Contains("conv and linear"));
  CHECK_THROWS_WITH(prepare({.op = "relu", .phase = "first"}), Catch::Contains("no phase first"));
  CHECK_THROWS_WITH(prepare({.type = "int8"}), Catch::Contains("not int8"));
}

TEST_CASE("nodes of a network are the operators of the sweeps, and widths go with the layers that share them",
          "[ops]") {
  BatchSchema schema;
  schema.has_target = false;
  FieldSchema input;
  input.name = "x";
  input.shape = {3, 8, 8};
  schema.inputs = {input};
  GraphBuilder b(schema, 1);
  const auto conv = [&](ValueId x, const std::string& name, std::int64_t out, std::int64_t groups = 1) {
    return b.conv2d(x, name, out, {.kernel = 3, .padding = 1, .groups = groups});
  };
  ValueId x = b.relu(b.batch_norm(conv(b.input(0), "stem", 10), "norm"));
  const ValueId branch = conv(b.relu(conv(x, "a", 12)), "b", 10);
  x = b.add(x, branch);
  x = conv(x, "depth", 10, 10);
  x = b.flatten(b.max_pool2d(x, 2, 2));
  x = b.linear(b.relu(b.linear(x, "hidden", 30)), "head", 5);
  GraphNetwork network(b.finish(x));
  const Graph& graph = *network.graph();

  const auto node = [&](const std::string& name) {
    for (const Node& each : graph.nodes)
      if (each.name == name) return each;
    throw std::runtime_error(name);
  };
  CHECK((operator_of(graph, node("stem"), 4) == Operator{.batch = 4, .size = 8, .in = 3, .out = 10}));
  CHECK((operator_of(graph, node("depth"), 4) ==
         Operator{.batch = 4, .size = 8, .in = 10, .out = 10, .groups = 10}));
  CHECK((operator_of(graph, node("hidden"), 4) ==
         Operator{.op = "linear", .batch = 4, .size = 1, .in = 160, .out = 30, .kernel = 1}));

  const std::vector<Width> widths = widths_of(graph);
  std::map<std::int64_t, Width> by_channels;
  for (const Width& each : widths) by_channels[each.channels] = each;
  REQUIRE(widths.size() == 3);  // 10, 12 and 30; the head's 5 are the answers
  const auto names = [&](const std::vector<std::size_t>& nodes) {
    std::set<std::string> found;
    for (const std::size_t each : nodes) found.insert(graph.nodes[each].name);
    return found;
  };
  CHECK(names(by_channels[10].makers) == std::set<std::string>{"stem", "b"});
  CHECK(names(by_channels[10].followers).contains("depth"));
  CHECK(names(by_channels[10].followers).contains("norm"));
  std::map<std::string, std::int64_t> readers;
  for (const Width::Reader& each : by_channels[10].readers) readers[graph.nodes[each.node].name] = each.each;
  CHECK(readers == std::map<std::string, std::int64_t>{{"a", 1}, {"hidden", 16}});
  CHECK(names(by_channels[30].makers) == std::set<std::string>{"hidden"});

  // Passes of the parts and of the whole, and buffers as they were.
  const at::Tensor mean = network.buffers().front().tensor.clone();
  Batch batch;
  batch.inputs = {at::Tensor()};
  batch.inputs[0] = network.parameters().front().tensor.detach().new_ones({4, 3, 8, 8});
  batch.indices = {0, 1, 2, 3};
  const NetworkTimes times =
      time_network(network, batch, {.rounds = 2, .least_seconds = 1e-5, .before_call = {}},
                   RandomStream(1, "test"), [] { return false; });
  REQUIRE(times.nodes.size() == graph.nodes.size());
  CHECK(network.buffers().front().tensor.equal(mean));
  for (const NodeTimes& each : times.nodes) {
    CHECK(each.measured.forward > 0.0);
    CHECK(each.first == (each.name == "stem"));
  }
  for (const NamedTensor& each : network.parameters()) CHECK(!each.tensor.grad().defined());
}

TEST_CASE("advice is written into the options that hold the widths, and said where none does", "[ops]") {
  Table model;
  model.set("type", "mlp");
  model.set("hidden", Array{60, 30, 60});
  model.set("width", 17);
  Table config;
  config.set("model", model);
  const auto width = [](std::int64_t channels, std::size_t maker) {
    return Width{.channels = channels, .makers = {maker}};
  };
  const std::vector<Width> widths = {width(60, 0), width(30, 1), width(60, 2), width(17, 3), width(5, 4)};
  const auto advice = [&](std::size_t i, std::int64_t channels, Advice::Kind kind) {
    return Advice{
        .kind = kind, .width = widths[i], .channels = channels, .layers = "layer" + std::to_string(i)};
  };
  const Applied applied = apply(config, widths,
                                {advice(2, 64, Advice::Kind::faster), advice(3, 20, Advice::Kind::faster),
                                 advice(1, 29, Advice::Kind::narrower), advice(4, 8, Advice::Kind::faster)},
                                Advice::Kind::faster);
  CHECK(applied.changes == std::vector<std::string>{"model.hidden = [60, 30, 64], which was [60, 30, 60]",
                                                    "model.width = 20, which was 17"});
  CHECK_THAT(applied.text, Catch::Contains("[model]\nhidden = [60, 30, 64]\nwidth = 20\n"));
  REQUIRE(applied.without.size() == 1);
  CHECK_THAT(applied.without[0],
             Catch::Contains("layer4: the model's options have 5 0 times, its widths 1 times"));
  CHECK(apply(config, widths, {}, Advice::Kind::faster).text.empty());
}

TEST_CASE("what comes first in a network is an operator that runs in training", "[ops]") {
  BatchSchema schema;
  schema.has_target = false;
  FieldSchema input;
  input.name = "x";
  input.shape = {3, 8, 8};
  schema.inputs = {input};
  GraphBuilder b(schema, 1);
  const ValueId x = b.conv2d(b.batch_norm(b.input(0), "norm"), "conv", 4, {});
  GraphNetwork network(b.finish(x));
  NodeTimes norm{.point = operator_of(*network.graph(), network.graph()->nodes[0], 2), .first = true};
  CHECK_NOTHROW(prepare(in_training(norm)).call());
  norm.point = Operator{};
  CHECK(in_training(norm).phase == "first");
}

TEST_CASE("ranks agree, disagree, and do neither", "[ops]") {
  CHECK(rank_correlation({1, 2, 3}, {10, 20, 30}) == 1.0);
  CHECK(rank_correlation({1, 2, 3}, {3, 2, 1}) == -1.0);
  CHECK(rank_correlation({1, 2, 3, 4}, {2, 1, 4, 3}) == Approx(1.0 / 3.0));
}

TEST_CASE("a latency model learns a law with steps that multiply-adds alone do not tell", "[ops]") {
  const RandomStream random(5, "points");
  const auto law = [](const Operator& p) {
    const double edge = std::floor(static_cast<double>(p.size + 2 * (p.kernel / 2) - p.kernel) /
                                   static_cast<double>(p.stride)) +
                        1.0;
    const double special = p.kernel == 3 ? 1.0 : 2.5;  // as libraries have 3x3 kernels of their own
    return 5e-6 + 1e-9 * special * edge * edge * static_cast<double>(p.kernel * p.kernel) *
                      static_cast<double>(p.in) / 16.0 * steps(p.out, 16);
  };
  std::vector<ops::Sample> fitted, held_out;
  for (std::uint64_t i = 0; i < 700; ++i) {
    const Operator point = drawn("conv", random, i);
    (i < 600 ? fitted : held_out).push_back({point, law(point)});
  }
  const Accuracy accuracy = accuracy_of(LatencyModel(fitted, 16, 1), fitted, held_out);
  CHECK(accuracy.within_10 > 0.85);
  CHECK(accuracy.flops_within_10 < 0.5);
  const auto hard = hard_points(fitted, 16, 1);
  CHECK(hard.size() < 150);
}

}  // namespace ops_test
