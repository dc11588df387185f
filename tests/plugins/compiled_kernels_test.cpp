// Kernels that times choose: the numbers are right whatever is chosen, and what is chosen stays.
#include <catch2/catch.hpp>

#include <ATen/Parallel.h>

#include <barrier>
#include <chrono>
#include <cmath>
#include <fstream>
#include <map>
#include <thread>

#include <trainyard/state.hpp>
#include <trainyard/testing/host.hpp>

#include "kernels/cpu/winograd.hpp"
#include "lib/read_file.hpp"
#include "plugins/executor/compiled/kernel_trial.hpp"
#include "plugins/executor/compiled/plan.hpp"
#include "plugins/executor/compiled/run_kernels.hpp"
#include "tests/plugins/compiled_networks.hpp"
#include "tests/support/cache_home.hpp"
#include "tests/support/files.hpp"

namespace compiled_kernels_tests {

namespace {

using namespace trainyard;
using namespace trainyard::test;
using compiled::Choices;
using compiled::Direction;
using compiled::KernelFile;
using compiled::KernelTable;
using compiled::KernelTimes;
using compiled::Plan;
using compiled::PlanKey;
using compiled::RunKernels;
using compiled::Way;

constexpr std::array all_directions = {Direction::forward, Direction::weights, Direction::data};

/// Whether fewer products are possible: the house's have the block of channels that the plan has, but where
/// ONEDNN_MAX_CPU_ISA keeps instructions from oneDNN alone.
bool has_winograd() {
  return kernels::winograd_kernels().block == compiled::channel_block();
}

/// By 3 x 3 and 5 x 5, with bias and ReLU and without, of channels that fill no block, and by steps of two.
Graph convolutions() {
  GraphBuilder b(schema_of({16, 12, 12}), 3);
  ValueId x = b.tanh(b.conv2d(b.input(), "a", 20, {.padding = 1, .bias = false}));
  x = b.tanh(b.conv2d(x, "b", 24, {.kernel = 5, .padding = 2}));
  x = b.relu(b.conv2d(x, "c", 16, {.padding = 1}));
  x = b.conv2d(x, "d", 32, {.stride = 2, .padding = 1});
  return b.finish(b.linear(b.flatten(b.average_pool2d(x, 3, 3)), "e", 4));
}

/// Times by which one way is the fastest everywhere.
std::shared_ptr<const KernelTable> favouring(const Graph& graph,
                                             const std::vector<std::pair<Direction, Way>>& fastest) {
  KernelTable table;
  for (const Node& node : graph.nodes) {
    if (node.op != "Conv" && node.op != "Gemm") continue;
    KernelTimes& times = table[compiled::shape_key(graph, node)];
    for (auto& row : times.seconds) row = {2.0, 2.0, 2.0};
    for (const auto& [direction, way] : fastest) times.of(way, direction) = 1.0;
  }
  return std::make_shared<KernelTable>(std::move(table));
}

std::shared_ptr<Plan> planned(GraphNetwork& network, const Batch& batch, const Choices& choices,
                              at::ScalarType precision = at::kFloat) {
  return std::make_shared<Plan>(
      network, PlanKey{.inputs = {batch.inputs[0].sizes().vec()}, .precision = precision}, choices);
}

std::vector<double> numbers_of(const Found& found) {
  std::vector<double> numbers;
  const auto add = [&](const at::Tensor& tensor) {
    const at::Tensor flat = tensor.to(at::kDouble).contiguous();
    numbers.insert(numbers.end(), flat.const_data_ptr<double>(),
                   flat.const_data_ptr<double>() + flat.numel());
  };
  add(found.output);
  for (const at::Tensor& each : found.gradients) add(each);
  return numbers;
}

/// Of one pass, with everything that it gives.
std::vector<double> numbers_by(const Choices& choices, at::ScalarType precision = at::kFloat) {
  GraphNetwork network(convolutions());
  const Batch batch = batch_of(several({6, 16, 12, 12})[0]);
  const auto plan = planned(network, batch, choices, precision);
  return numbers_of(through(
      network, [&](const Batch& b) { return plan->forward(b, training); }, batch, at::ones({6, 4})));
}

TEST_CASE("Compiled convolutions take the kernel that is fastest by their times, and are the network by each",
          "[compiled]") {
  // Each direction by each of the two, whatever the others take.
  for (int mask = 0; mask < 8; ++mask) {
    std::vector<std::pair<Direction, Way>> fastest;
    for (std::size_t d = 0; d < all_directions.size(); ++d)
      fastest.emplace_back(all_directions[d], (mask >> d & 1) != 0 ? Way::winograd : Way::direct);
    const Choices choices{.kernels = favouring(convolutions(), fastest)};
    check_same(convolutions, several({6, 16, 12, 12}), [&](GraphNetwork& network, const Batch& batch) {
      auto plan = planned(network, batch, choices);
      std::map<Direction, int> seen;
      for (const compiled::Kernel& each : plan->kernels()) {
        // d goes by steps of two.
        const bool may = has_winograd() && network.graph()->nodes[each.node].name != "d";
        const Way wanted = may ? fastest[static_cast<std::size_t>(each.direction)].second : Way::direct;
        CHECK(each.way == wanted);
        ++seen[each.direction];
      }
      CHECK((seen == std::map<Direction, int>{
                         {Direction::forward, 4}, {Direction::weights, 4}, {Direction::data, 3}}));
      return plan;
    });
  }
  // None takes fewer products where the run wants none, whatever the times say.
  GraphNetwork network(convolutions());
  std::vector<std::pair<Direction, Way>> fewer;
  for (const Direction each : all_directions) fewer.emplace_back(each, Way::winograd);
  const auto plan = planned(network, batch_of(several({6, 16, 12, 12})[0]),
                            {.winograd = false, .kernels = favouring(convolutions(), fewer)});
  for (const compiled::Kernel& each : plan->kernels()) CHECK(each.way == Way::direct);
}

TEST_CASE("Compiled kernels within some percent, or without times, are chosen by counts", "[compiled]") {
  KernelTimes times;
  for (const bool counted : {false, true}) {
    CHECK(compiled::takes_winograd(times, Direction::forward, counted) == counted);
    times.of(Way::direct, Direction::forward) = 1.0;
    CHECK_FALSE(compiled::takes_winograd(times, Direction::forward, counted));  // there is no other
    for (const double near : {0.98, 1.0, 1.02}) {
      times.of(Way::winograd, Direction::forward) = near;
      CHECK(compiled::takes_winograd(times, Direction::forward, counted) == counted);
    }
    times.of(Way::winograd, Direction::forward) = 0.9;
    CHECK(compiled::takes_winograd(times, Direction::forward, counted));
    CHECK(compiled::takes_winograd(times, Direction::data, counted) == counted);
    times.of(Way::winograd, Direction::forward) = 1.1;
    CHECK_FALSE(compiled::takes_winograd(times, Direction::forward, counted));
    times.is_rough = true;  // beside other programs
    for (const double near : {0.8, 1.2}) {
      times.of(Way::winograd, Direction::forward) = near;
      CHECK(compiled::takes_winograd(times, Direction::forward, counted) == counted);
    }
    times.of(Way::winograd, Direction::forward) = 0.7;
    CHECK(compiled::takes_winograd(times, Direction::forward, counted));
    times.of(Way::winograd, Direction::forward) = 1.4;
    CHECK_FALSE(compiled::takes_winograd(times, Direction::forward, counted));
    times = {};
  }
  // A table that does not know the shapes changes nothing.
  const auto other = std::make_shared<KernelTable>(KernelTable{{"Conv of another shape", times}});
  CHECK(numbers_by({}) == numbers_by({.kernels = other}));
}

TEST_CASE("Compiled passes that may have bfloat16 are those of single precision where times say so",
          "[compiled]") {
  if (!compiled::has_halves()) return;  // nothing to choose
  CHECK(numbers_by({.halves = false}, at::kBFloat16) == numbers_by({}));
  CHECK(numbers_by({}, at::kBFloat16) != numbers_by({}));
}

KernelTimes times_of(double seconds) {
  KernelTimes times;
  for (const Direction each : all_directions) times.of(Way::direct, each) = seconds;
  return times;
}

TEST_CASE("Times of compiled kernels stay as the first run on a machine has them", "[compiled]") {
  const TempFolder folder;
  const CacheHome home(folder.path("cache"));
  const KernelFile file(2);
  CHECK_FALSE(file.read().has_value());
  KernelTimes rough = times_of(1.0);
  rough.is_rough = true;
  CHECK((file.keep({{"a", times_of(1.0)}}) == KernelTable{{"a", times_of(1.0)}}));
  CHECK((file.keep({{"a", times_of(2.0)}, {"b", rough}}) == KernelTable{{"a", times_of(1.0)}, {"b", rough}}));
  CHECK((file.read() == KernelTable{{"a", times_of(1.0)}, {"b", rough}}));
  CHECK_FALSE(KernelFile(1).read().has_value());  // other threads take other times

  SECTION("two that come first at once go by the same times") {
    KernelTable many;  // so that writing takes a while
    for (int i = 0; i < 2000; ++i) many["other" + std::to_string(i)] = times_of(1.0);
    REQUIRE(file.keep(many).has_value());
    std::vector<KernelTable> found(4);
    {
      std::barrier together(std::ssize(found));
      std::vector<std::jthread> writers;
      for (std::size_t i = 0; i < found.size(); ++i)
        writers.emplace_back([&, i] {
          for (int k = 0; k < 5; ++k) {
            together.arrive_and_wait();
            const std::string key = "key" + std::to_string(k);
            const auto kept = KernelFile(2).keep({{key, times_of(static_cast<double>(i + 1))}});
            if (kept) found[i][key] = kept->at(key);
          }
        });
    }
    for (const KernelTable& each : found) {
      CHECK(each.size() == 5);
      CHECK((each == found.front()));
    }
  }
  SECTION("what is spoilt, cut off or of another machine is none, and is replaced") {
    const std::string whole = *lib::read_file(file.path());
    const auto changed = [&](const std::string& from, const std::string& to) {
      std::string text = whole;
      return text.replace(text.find(from), from.size(), to);
    };
    for (const std::string& text : {std::string("rubbish"), std::string(), whole.substr(0, whole.size() / 2),
                                    whole.substr(0, whole.size() - 3), changed("oneDNN", "twoDNN"),
                                    changed("\"format\": 1", "\"format\": 2"), changed("1.0", "-1.0"),
                                    changed("1.0", "\"fast\""), std::string("[]"), std::string("{}")}) {
      std::ofstream(file.path()) << text;
      INFO(text);
      CHECK_FALSE(file.read().has_value());
      CHECK((file.keep({{"c", times_of(3.0)}}) == KernelTable{{"c", times_of(3.0)}}));
      CHECK((file.read() == KernelTable{{"c", times_of(3.0)}}));
    }
  }
  SECTION("where nothing can be written nothing is kept") {
    folder.write("file", "");
    const CacheHome nowhere(folder.path("file"));
    CHECK_FALSE(KernelFile(2).keep({{"a", times_of(1.0)}}).has_value());
  }
}

TEST_CASE("A trial of compiled kernels times what is possible", "[compiled]") {
  const Graph graph = convolutions();
  const auto of = [&](const char* name, bool halves) {
    for (const Node& node : graph.nodes) {
      if (node.name != name) continue;
      std::vector<Way> ways = {Way::direct, Way::winograd};
      if (halves) ways.push_back(Way::halves);
      return compiled::tried(graph, node, 8, ways, true, 1);
    }
    return KernelTimes();
  };
  for (const bool halves : {false, true}) {
    if (halves && !compiled::has_halves()) continue;
    const KernelTimes fast = of("b", halves), strided = of("d", halves), layer = of("e", halves);
    for (const Direction each : all_directions) {
      const auto is = [&](const KernelTimes& times, Way way, bool possible) {
        CHECK(std::isfinite(times.of(way, each)) == possible);
        if (possible) CHECK(times.of(way, each) > 0.0);
      };
      is(fast, Way::direct, true);
      is(fast, Way::winograd, has_winograd());
      is(fast, Way::halves, halves);
      is(strided, Way::direct, halves);  // alone there is nothing to choose
      is(strided, Way::winograd, false);
      is(layer, Way::direct, halves);
      is(layer, Way::halves, halves);
    }
  }
}

/// Decides for convolutions(), as a first pass of so many samples does, and says how long that took.
struct Decided {
  RunKernels kernels;
  testing::FakeHost host;
  double seconds = 0.0;

  explicit Decided(std::int64_t samples = 4, at::ScalarType precision = at::kFloat) {
    const auto begin = std::chrono::steady_clock::now();
    kernels.decide(convolutions(), PlanKey{.inputs = {{samples, 16, 12, 12}}, .precision = precision}, true,
                   host);
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
};

TEST_CASE("The first run measures compiled kernels, and later ones go by its times", "[compiled]") {
  const TempFolder folder;
  const CacheHome home(folder.path("cache"));
  const Decided first;
  CHECK(first.kernels.is_decided());
  CHECK(first.host.logged("3 of them measured now"));
  const std::string kept = *lib::read_file(KernelFile(1).path());
  const Decided second;
  CHECK_FALSE(second.host.logged("measured now"));
  CHECK((*second.kernels.times() == *first.kernels.times()));
  CHECK(second.seconds < 0.1);
  CHECK(*lib::read_file(KernelFile(1).path()) == kept);
  const Decided other(8);  // samples
  CHECK(other.host.logged("3 of them measured now"));
  CHECK(RunKernels::foreseen(convolutions(), 4, 1, false, true).starts_with("times of 3 of 3 shapes"));
  CHECK(RunKernels::foreseen(convolutions(), 5, 1, false, true).find("the first step measures the rest") !=
        std::string::npos);

  // A run that goes on where other times are known, or none, goes by its own.
  State state;
  StateWriter writer(state);
  first.kernels.save(writer);
  RunKernels again;
  again.load(StateReader(state));
  CHECK(again.is_decided());
  CHECK(again.is_for(1));
  CHECK_FALSE(again.is_for(2));
  CHECK((*again.times() == *first.kernels.times()));
  CHECK(again.has_halves() == first.kernels.has_halves());
  State none;
  again.load(StateReader(none));
  CHECK_FALSE(again.is_decided());

  folder.write("file", "");
  const CacheHome nowhere(folder.path("file"));
  const Decided unkept;
  CHECK(unkept.kernels.is_decided());
  CHECK(unkept.kernels.times()->empty());
  CHECK(unkept.host.logged("cannot be written", LogLevel::warning));
}

TEST_CASE("Whether compiled passes have bfloat16 is decided by what all layers take", "[compiled]") {
  if (!compiled::has_halves()) return;  // nothing to choose
  const TempFolder folder;
  const CacheHome home(folder.path("cache"));
  // Times of all shapes, as another run may have left them, with those of bfloat16 as a part of the others'.
  for (const double part : {0.5, 0.99, 1.02, 1.5}) {
    KernelTable table;
    std::filesystem::remove(KernelFile(1).path());
    { const Decided measured(4, at::kBFloat16); }
    const std::optional<KernelTable> read = KernelFile(1).read();
    REQUIRE(read.has_value());
    for (auto [key, times] : *read) {
      times.seconds[static_cast<std::size_t>(Way::winograd)] = {3.0, 3.0, 3.0};
      times.seconds[static_cast<std::size_t>(Way::direct)] = {2.0, 2.0, 2.0};
      times.seconds[static_cast<std::size_t>(Way::halves)] = {2.0 * part, 2.0 * part, 2.0 * part};
      table.emplace(key, times);
    }
    std::filesystem::remove(KernelFile(1).path());
    REQUIRE(KernelFile(1).keep(table).has_value());
    const Decided decided(4, at::kBFloat16);
    CHECK(decided.kernels.has_halves() == (part < 1.03));
  }
}

}  // namespace
}  // namespace compiled_kernels_tests
