// Shipped schedules in runs, and plugins that are made of plugins as a run file has them.
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "core/engine/train/active_plugin.hpp"
#include "core/plugins/loader.hpp"
#include "support/plugin.hpp"
#include "support/run.hpp"

namespace schedules_tests {

using namespace trainyard;
using Catch::Matchers::Contains;
using Catch::Matchers::Equals;
using test::shipped;

namespace {

const std::string head = R"(
schema = 1
[run]
seed = 3
threads = { intra_op = 1, inter_op = 1 }
[model]
type = "mlp"
layers = [8, 6, 3]
[loss]
type = "cross_entropy"
[data]
type = "synthetic"
kind = "classification"
shape = [8]
classes = 3
train = { size = 24, batch_size = 8, micro_batch_size = 2, shuffle = true }
val = { size = 8 }
[trainer]
max_duration = "4ep"
eval_interval = "1ba"
)";

const std::string groups = R"(
[optimizer]
type = "sgd"
lr = 0.001
momentum = 0.9
groups = [{ match = ["*1.weight"], lr = 0.01 }, { match = ["*2.weight"], lr = 0.1 }]
)";

std::string schedule(const std::string& lines) {
  return head + "[optimizer]\ntype = \"sgd\"\nlr = 0.1\n[schedule]\n" + lines;
}

/// What is wrong with a run file; empty: nothing.
std::string findings(const std::string& text) {
  return test::resolve(text).findings.text();
}

/// Looks at a run at its safe points.
struct AtSafePoint final : train::LoopHost {
  void at_safe_point() override { call(); }
  std::function<void()> call;
};

}  // namespace

TEST_CASE(
    "groups keep the ratio of their learning rates through every schedule, whatever is written between "
    "steps") {
  const std::map<std::string, std::string> needed = {
      {"sequence",
       "parts = [{ type = \"linear\", start_factor = 0.1, end_factor = 1.0, budget = \"25%\" }, "
       "{ type = \"one_cycle\" }]\n"},
      {"chain", "parts = [{ type = \"rex\" }, { type = \"step\" }]\n"},
      {"plateau", "patience = 0\n"}};
  int schedules = 0;
  for (const plugins::PluginFile& file : shipped().files()) {
    if (file.manifest.kind != "schedule") continue;
    ++schedules;
    const std::string& name = file.manifest.name;
    INFO(name);
    const auto more = needed.find(name);
    config::RunConfig config = test::valid(head + groups + "[schedule]\ntype = \"" + name +
                                           "\"\nfloor = 0.02\n" + (more == needed.end() ? "" : more->second));
    const auto alone = test::make<Schedule>(name, config.at("schedule").options);
    std::optional<ScheduleCurve> curve;
    std::optional<test::BuiltRun> run;
    std::int64_t done = 0;
    AtSafePoint host;
    host.call = [&] {
      std::vector<ParamGroup>& found = (*run)->optimizer().groups();
      REQUIRE(found.size() == 3);
      std::set<double> bases;
      const double factor = found[0].lr / found[0].base_lr;
      if (name != "plateau") {
        CHECK(factor == Approx(curve->factor(done)).epsilon(1e-12));
        CHECK(found[0].momentum == curve->momentum(done));
      }
      CHECK(factor >= 0.02 * (1 - 1e-12));
      for (ParamGroup& group : found) {
        bases.insert(group.base_lr);
        CHECK(group.lr == Approx(group.base_lr * factor).epsilon(1e-12));
        group.lr = 1e3 * static_cast<double>(done);
        group.momentum = 0.123;
      }
      CHECK(bases == std::set<double>{0.001, 0.01, 0.1});
      ++done;
    };
    train::LoopParts parts;
    parts.host = &host;
    run.emplace(std::move(config), std::move(parts));
    curve.emplace(*alone, (*run)->scale());
    // The weights do not last long, with these rates; no matter.
    (*run)->loop().fit();
    CHECK(done == 12);
  }
  CHECK(schedules >= 16);
}

TEST_CASE("the plugins among a plugin's options are checked like those of slots") {
  CHECK_THAT(findings(schedule("type = \"sequence\"\n")),
             Contains("E108") && Contains("needs `parts`") && Contains("list of schedule plugins"));
  CHECK_THAT(
      findings(schedule("type = \"chain\"\nparts = \"rex\"\n")),
      Contains("E105") && Contains("schedule.parts: expected a list of schedule plugins, found string"));
  // One alone needs no brackets, and is checked as within them.
  CHECK(findings(schedule("type = \"chain\"\nparts = { type = \"rex\" }\n")).empty());
  CHECK_THAT(findings(schedule("type = \"chain\"\nparts = { type = \"rex\", bete = 0.5 }\n")),
             Contains("E104") && Contains("[schedule.parts]"));
  CHECK_THAT(findings(schedule("type = \"chain\"\nparts = [\"rex\"]\n")),
             Contains("E105") && Contains("schedule.parts[0]: expected a table, found string"));
  CHECK_THAT(findings(schedule("type = \"chain\"\nparts = [{ beta = 0.5 }]\n")),
             Contains("E108") && Contains("[schedule.parts[0]] needs `type`"));
  CHECK_THAT(findings(schedule("type = \"chain\"\nparts = [\n  { type = \"rax\" }]\n")),
             Contains("run.toml:27:12") && Contains("E301") &&
                 Contains("no schedule plugin is called \"rax\"") && Contains("rex"));
  CHECK_THAT(findings(schedule("type = \"chain\"\nparts = [{ type = \"rex\", bete = 0.5 }]\n")),
             Contains("E104") && Contains("unknown key `bete` in [schedule.parts[0]] (type = \"rex\")") &&
                 Contains("did you mean `beta`"));
  CHECK_THAT(findings(schedule("type = \"chain\"\nparts = [{ type = \"rex\", warmup = \"10s\" }]\n")),
             Contains("E122") && Contains("schedule.parts[0].warmup"));
  CHECK_THAT(findings(schedule("type = \"chain\"\nparts = [{ type = \"sequence\", parts = "
                               "[{ type = \"rex\", beta = 1.5 }] }]\n")),
             Contains("E106") && Contains("schedule.parts[0].parts[0].beta: 1.5 is out of range"));
  CHECK_THAT(findings(schedule("type = \"chain\"\nparts = [{ type = \"plateau\" }]\n")),
             Contains("E307") && Contains("schedule.parts[0]: the schedule \"plateau\" has hooks"));
  const std::string two =
      schedule("type = \"chain\"\nparts = [{ type = \"constant\" }, { type = \"rex\" }]\n");
  CHECK_THAT(
      test::resolve(two, {"trainer.max_duration=1m"}).findings.text(),
      Contains("E303") && Contains("schedule.parts[1]: the schedule \"rex\" needs a run whose length"));
}

TEST_CASE("a resolved run file shows its plugins' plugins whole, and resolves to itself") {
  const config::RunConfig config = test::valid(schedule(
      "type = \"sequence\"\nparts = [{ type = \"linear\", budget = \"25%\" }, { type = \"rex\" }]\n"));
  const std::string shown = config::toml_file(config.resolved);
  CHECK_THAT(shown, Contains("beta = 0.5") && Contains("end_factor = 0.0"));
  CHECK_THAT(config::toml_file(test::valid(shown).resolved), Equals(shown));
}

TEST_CASE("a part that has state is refused when it is made, and one that nobody asked for cannot be made") {
  const config::SlotConfig slot{.slot = "metrics[0]", .kind = "metric", .type = "pair", .id = "pair"};
  const train::HostOutputs outputs;
  const plugins::LoadedPlugin counting = plugins::load(*shipped().find("metric", "accuracy").front());
  train::HostServices host(slot, outputs, {{{"metric", "accuracy"}, counting}});
  CHECK_THROWS_WITH(host.make("metric", test::table({{"type", "accuracy"}})),
                    Contains("the metric \"accuracy\" has state"));
  CHECK_THROWS_WITH(host.make("metric", test::table({{"type", "mae"}})),
                    Contains("the metric \"mae\" is in none of the options"));
}

}  // namespace schedules_tests
