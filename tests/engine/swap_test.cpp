// Swaps in a live run: what is refused leaves no trace, what fails soon after is taken back to the bit, and
// what one slot hands to the next.
#include <catch2/catch.hpp>
#include <cmath>
#include <numbers>
#include <numeric>

#include "core/runfile/at_path.hpp"
#include "support/live.hpp"
#include "support/plugin.hpp"

namespace swap_tests {

using namespace trainyard;
using Catch::Matchers::Contains;
using test::Ask;
using test::LiveRun;
using test::registry;

namespace {

constexpr int steps = 24;
const std::string head = R"(
schema = 1
[run]
name = "swaps"
seed = 3
threads = { intra_op = 1, inter_op = 1 }
[model]
type = "mlp"
layers = [8, 16, 3]
[loss]
type = "cross_entropy"
[data]
type = "synthetic"
kind = "classification"
shape = [8]
classes = 3
train = { size = 96, batch_size = 16, shuffle = true }
val = { size = 32 }
[trainer]
max_duration = "24ba"
eval_interval = "5ba"
)";

std::string run_with(const std::string& optimizer, const std::string& more = {}) {
  return head + "[optimizer]\nlr = 0.01\ntype = " + optimizer + "\n" + more;
}
const std::string adamw = run_with("\"adamw\"", "[[hooks]]\ntype = \"ema\"\ndecay = 0.9\n");

std::string undisturbed(const std::string& text) {
  LiveRun run(text, registry());
  run.fit();
  return run.result();
}

config::SwapRequest request(const std::string& slot, const std::string& type = {}, const Table& options = {},
                            config::Carry carry = config::Carry::state) {
  return {.slot = slot, .type = type, .options = options, .carry = carry, .watch = "0ba"};
}

Table options(const std::string& key, Value value) {
  Table table;
  table.set(key, std::move(value));
  return table;
}

/// Keeps the learning rate of each step.
class Rates final : public LiveRun {
 public:
  using LiveRun::LiveRun;
  std::vector<double> seen;

 private:
  bool log_due(std::int64_t) override { return true; }
  void record(Record&& record) override {
    for (const auto& [name, value] : record.values)
      if (name == "lr") seen.push_back(value);
  }
};

/// Learning-rate factors of the steps of a run with `due`; the base is 1.
std::vector<double> factors(const std::string& schedule, const std::vector<test::Due>& due) {
  Rates run(head + "[optimizer]\ntype = \"sgd\"\nlr = 1.0\n[schedule]\n" + schedule, registry(), {}, due);
  run.fit();
  return run.seen;
}

/// Every second step, to nowhere.
class Steps final : public train::Saver {
 public:
  std::int64_t every() const override { return 2; }
  void save() override { seen.push_back((*run)->clock().step); }
  std::optional<train::Saved> take_committed() override { return std::nullopt; }
  void drain() override {}

  LiveRun* run = nullptr;
  std::vector<std::int64_t> seen;
};

State optimizer_state(LiveRun& run) {
  for (train::ActivePlugin& plugin : run->plugins())
    if (plugin.slot().kind == "optimizer") return plugin.state();
  return {};
}

}  // namespace

TEST_CASE("what a swap is refused for, the client is told, and the run never notices") {
  const std::string expected = undisturbed(adamw);
  const struct {
    Ask ask;
    const char* said;
  } refusals[] = {
      {{7, "optimizer", "nothing_of_this_name", {}}, "nothing_of_this_name"},
      {{7, "optimiser", "sgd", {}}, "optimizer"},
      {{7, "optimizer", "", {"lr=-1.0"}}, "lr"},
      {{7, "optimizer", "", {"betas=[0.9]"}}, "expected a list of 2 floats"},
      {{7, "optimizer", "", {"learning=1.0"}}, "learning"},
      {{7, "optimizer", "sgd", {}, "restart"}, "schedule"},
      {{7, "optimizer", "sgd", {}, "nonsense"}, "nonsense"},
      {{7, "data", "", {"train.batch_size=32"}}, "batch size"},
      {{7, "data", "", {"train.size=48"}}, "samples"},
      {{7, "data", "", {"workers=4"}}, "workers"},
      {{7, "data", "", {"test.size=32"}}, "keeps its slots"},
      {{7, "hooks.ema", "", {"id=other"}}, "keeps its slots"},
      {{7, "hooks.ema", "initialiser", {}}, "from the beginning"},
      {{7, "model", "", {"layers=[8, 20, 3]"}}, "in the model that is replaced"},
      {{7, "schedule", "constant", {"value=0.0"}, "splice"}, "must be above 0"},
      {{7, "schedule", "constant", {"warmup=\"1000ba\""}}, "longer than the run"},
      {{7, "optimizer", "troubled", {"at=construction"}, "fresh"}, "thrown on purpose"},
      {{7, "optimizer", "troubled", {"at=open"}, "fresh"}, "thrown on purpose"},
      {{7, "optimizer", "troubled", {"at=load"}}, "thrown on purpose"},
      {{7, "optimizer", "troubled", {"at=save"}}, "thrown on purpose"},
      {{7, "optimizer", "troubled", {"at=swap_in"}, "fresh"}, "thrown on purpose"},
  };
  for (const auto& [ask, said] : refusals) {
    INFO(ask.slot << " " << ask.type << " " << (ask.assignments.empty() ? "" : ask.assignments[0]));
    LiveRun run(adamw, registry(), {ask});
    run.fit();
    REQUIRE(run.told().size() == 1);
    CHECK_FALSE(run.told()[0].done);
    CHECK_THAT(run.told()[0].text, Contains(said));
    CHECK(run->live().swaps == 0);
    CHECK(run.result() == expected);
  }
}

TEST_CASE("the plugin that is to go may object") {
  for (const char* moment : {"swap_out", "save"}) {
    const std::string text = run_with(std::string("\"troubled\"\nat = \"") + moment + "\"");
    LiveRun run(text, registry(), {{7, "optimizer", "troubled", {"at=never"}}});
    run.fit();
    CHECK_FALSE(run.told().at(0).done);
    CHECK_THAT(run.told().at(0).text, Contains("thrown on purpose"));
    CHECK(run.count("swap_refused") == 1);
    LiveRun never(run_with("\"troubled\"\nat = \"never\""), registry());
    never.fit();
    CHECK(run->states().model_digest() == never->states().model_digest());
  }
}

TEST_CASE("a swap that goes wrong while it is watched is taken back to the bit") {
  const std::string expected = undisturbed(adamw);
  for (const char* at : {"step", "not_finite"})
    for (const int own_step : {1, 2, 3})
      for (const int begins : {1, 4, 5, 6, 11, 12}) {  // 5: evaluated; 6 and 12: an epoch ends
        INFO(at << " in its step " << own_step << ", from step " << begins);
        const std::vector<std::string> assigned = {std::string("at=") + at,
                                                   "step=" + std::to_string(own_step)};
        LiveRun run(adamw, registry(), {{begins, "optimizer", "troubled", assigned, "fresh", "3ba"}});
        run.fit();
        CHECK(run.told().at(0).done);
        CHECK(run.count("swap") == 1);
        CHECK(run.count("swap_rolled_back") == 1);
        CHECK(run->live().swaps == 0);
        CHECK(run.result() == expected);
      }
}

TEST_CASE("a watch ends: what fails after it ends the run") {
  LiveRun run(adamw, registry(), {{2, "optimizer", "troubled", {"at=step", "step=3"}, "fresh", "2ba"}});
  CHECK_THROWS_WITH(run.fit(), Contains("thrown on purpose"));
}

TEST_CASE("a swap that is prepared while another is taken back is prepared once more") {
  const test::Folder folder;
  const std::string text = run_with("\"adamw\"", "[schedule]\ntype = \"constant\"\n");
  // The second is asked for at step 8, prepared from step 9 on, and ready when step 11 fails.
  LiveRun run(text + "[[hooks]]\ntype = \"slow\"\nat = \"after_fetch\"\nstep = 11\nsign = \"" +
                  (folder / "sign") + "\"\n",
              registry(),
              {{7, "optimizer", "troubled", {"at=step", "step=4"}, "fresh", "5ba"},
               {7, "schedule", "constant", {"value=0.5"}, "", "0ba", /*beside=*/true}});
  run.on_safe_point = [&] {
    if (run->clock().step == 8) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  };
  run.fit();
  REQUIRE(run.told().size() == 2);
  REQUIRE(run.told()[1].done);
  REQUIRE(run.count("swap_rolled_back") == 1);
  CHECK(run->live().swaps == 1);
  CHECK(run->config().at("optimizer").type == "adamw");
  CHECK(*config::at_path<std::string>(run->config().resolved, "optimizer.type") == "adamw");
  const std::int64_t landed = run.journal().back().step;
  LiveRun same(text, registry(), {},
               {{landed, request("schedule", "constant", options("value", Value(0.5)))}});
  same.fit();
  CHECK(run.result() == same.result());
}

TEST_CASE("checkpoints go on while a swap is watched") {
  for (const bool fails : {false, true}) {
    Steps saved;
    train::LoopParts parts;
    parts.saver = &saved;
    LiveRun run(adamw, registry(),
                {{7, "optimizer", "troubled", {"at=step", fails ? "step=3" : "step=1000"}, "fresh", "4ba"}},
                {}, std::move(parts));
    saved.run = &run;
    run.fit();
    std::vector<std::int64_t> expected = {2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24};
    if (fails) expected.insert(expected.begin() + 3, 8);  // the step was made again without the swap
    CHECK(saved.seen == expected);
  }
}

TEST_CASE("what the run was before a swap takes no further copy in a checkpoint") {
  const std::string wide = "[model]\ntype = \"mlp\"\nlayers = [8, 20000, 3]\n";  // 0.9 MiB
  std::string text =
      run_with("\"sgd\"", "[checkpoint]\ntype = \"async\"\nmemory_budget = 1\ninterval = \"2ba\"\n");
  text.replace(text.find("[model]"), text.find("[loss]") - text.find("[model]"), wide);
  auto schedule = request("schedule", "rex");
  schedule.watch = "9ba";
  LiveRun run(text, registry(), {}, {{3, schedule}});
  run.fit();
  CHECK(run.count("swap_rolled_back") == 0);
  CHECK(run->live().swaps == 1);
  CHECK_FALSE(run.logged("memory_budget"));
}

TEST_CASE("a swap to a checkpointer whose memory the state does not fit ends no run") {
  std::string text = run_with("\"adamw\"", "[checkpoint]\ntype = \"full\"\ninterval = \"2ba\"\n");
  text.replace(text.find("[model]"), text.find("[loss]") - text.find("[model]"),
               "[model]\ntype = \"mlp\"\nlayers = [8, 20000, 3]\n");  // 2.7 MiB
  auto async = request("checkpoint", "async", options("memory_budget", Value(std::int64_t{1})));
  async.watch = "1ba";
  LiveRun run(text, registry(), {}, {{3, async}});
  run.fit();
  CHECK(run->live().swaps == 1);
  CHECK(run.logged("memory_budget allows 1: it is written while the run waits"));
  CHECK(run.result() == undisturbed(text));
}

TEST_CASE("a planned swap that cannot be made after all is refused, and the run goes on") {
  LiveRun run(adamw, registry(), {}, {{4, request("optimizer", "troubled", options("at", Value("load")))}});
  run.fit();
  CHECK(run.count("swap_refused") == 1);
  CHECK(run->live().swaps == 0);
  CHECK(run.result() == undisturbed(adamw));
}

TEST_CASE("a plan that cannot be made is refused before the run begins") {
  const auto refusal = [](const std::string& text) -> std::string {
    train::Run run(test::config_of(text, {}, registry()), registry());
    run.build_model();
    run.build_loop({});
    try {
      train::Swaps(run).rehearse();
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "nothing";
  };
  const auto planned = [](const std::string& at, const std::string& slot, const std::string& rest) {
    return "[[swap]]\nat = \"" + at + "\"\nslot = \"" + slot + "\"\n" + rest + "\n";
  };
  CHECK_THAT(refusal(adamw + planned("4ba", "model", "layers = [8, 20, 3]")), Contains("at step 4"));
  CHECK_THAT(refusal(adamw + planned("4ba", "loss", "type = \"mse\"")), Contains("[loss] mse"));
  CHECK_THAT(refusal(adamw + planned("4ba", "data", "train = { size = 48 }")), Contains("samples an epoch"));
  const std::string cycled = run_with("\"sgd\"\nmomentum = 0.9", "[schedule]\ntype = \"one_cycle\"\n");
  CHECK_THAT(refusal(cycled + planned("4ba", "optimizer", "type = \"adagrad\"")), Contains("momentum"));
  CHECK_THAT(refusal(adamw + planned("4ba", "schedule", "type = \"constant\"\nvalue = 0.0") +
                     planned("8ba", "schedule", "type = \"linear\"\ncarry = \"splice\"")),
             Contains("at step 8") && Contains("no scale makes them meet"));
  // Each on what those before it leave, in the order of time and not of the file.
  CHECK(refusal(adamw + planned("8ba", "optimizer", "eps = 0.5") +
                planned("4ba", "optimizer", "type = \"adam\"")) == "nothing");
  CHECK(refusal(adamw + planned("50%", "optimizer", "type = \"sgd\"\nmomentum = 0.5") +
                planned("4ba", "schedule", "type = \"rex\"") +
                planned("75%", "schedule", "type = \"linear\"\ncarry = \"splice\"")) == "nothing");
}

TEST_CASE("options of the same plugin change, whatever state they bring or drop") {
  const std::string sgd = run_with("\"sgd\"");
  const auto momentum = [](double value) {
    return request("optimizer", "", options("momentum", Value(value)));
  };
  LiveRun run(sgd, registry(), {}, {{6, momentum(0.5)}, {10, momentum(0.0)}, {14, momentum(0.9)}});
  run.fit();
  CHECK(run.count("swap_refused") == 0);
  CHECK(run->live().swaps == 3);
  // The buffer that comes in begins at 0, and the first update with it is that of plain gradient descent.
  LiveRun late(sgd, registry(), {}, {{23, momentum(0.9)}});
  late.fit();
  CHECK(late.result() == undisturbed(sgd).replace(65, 64, late->states().optimizer_digest()));
}

TEST_CASE("a swap comes on what the swaps before it have left") {
  // A planned change of options, then another type: none of the first one's options may be in its way.
  LiveRun run(run_with("\"sgd\"", "[[swap]]\nat = \"90%\"\nslot = \"schedule\"\ntype = \"rex\"\n"),
              registry(), {{12, "optimizer", "adamw", {}}, {15, "optimizer", "", {"eps=0.5"}}},
              {{6, request("optimizer", "", options("momentum", Value(0.5)))}});
  run.fit();
  for (const test::Told& told : run.told()) {
    INFO(told.text);
    CHECK(told.done);
  }
  CHECK(run->live().swaps == 3);
  CHECK(run->config().at("optimizer").type == "adamw");
}

TEST_CASE("swaps that are watched together are taken back one after the other") {
  const std::string text = run_with(
      "\"adamw\"",
      "[schedule]\ntype = \"constant\"\n[[hooks]]\ntype = \"faulty\"\nstep = 1000\nway = \"throw\"\n");
  const std::string plain = undisturbed(text);
  auto failing = request("hooks.faulty", "", options("step", Value(std::int64_t{11})));
  failing.watch = "5ba";
  auto schedule = request("schedule", "constant", options("value", Value(0.5)));
  for (const int other : {7, 8, 9})
    for (const char* watch : {"0ba", "5ba"}) {
      INFO("the other comes at step " << other << ", watched for " << watch);
      schedule.watch = watch;
      LiveRun run(text, registry(), {}, {{7, failing}, {other, schedule}});
      run.fit();
      // One that is watched itself is suspected first; one that is not stands, at the step it was asked for.
      const bool suspected = schedule.watch != "0ba";
      CHECK(run.count("swap_rolled_back") == (suspected ? 2 : 1));
      CHECK(run->live().swaps == (suspected ? 0 : 1));
      LiveRun same(text, registry(), {}, {{other, schedule}});
      same.fit();
      CHECK(run.result() == (suspected ? plain : same.result()));
    }
}

TEST_CASE("a model and its optimizer that come in together train each other") {
  LiveRun run(adamw, registry());
  std::unique_ptr<train::PreparedSwap> swap;
  run.on_safe_point = [&] {
    if (run->clock().step != 7 || swap) return;
    swap = train::Swaps(*run).prepare({request("model"), request("optimizer")});
    train::Swaps(*run).commit(*swap);
  };
  run.fit();
  CHECK(run.result() == undisturbed(adamw));
}

TEST_CASE("a rule that its recorder objects to does not come in") {
  const std::string text = run_with("\"adamw\"", "[recorder]\nsave = false\n[[rules]]\ntype = \"probe\"\n");
  LiveRun run(text, registry(),
              {{7, "rules.probe", "", {"watch=\"(\""}}, {9, "rules.probe", "", {"fire_at=1000"}}});
  run.fit();
  REQUIRE(run.told().size() == 2);
  CHECK_FALSE(run.told()[0].done);
  CHECK_THAT(run.told()[0].text, Contains("is no expression"));
  CHECK(run.told()[1].done);  // the one that stayed is there to be replaced
  CHECK(run->live().swaps == 1);
  CHECK(run->config().of_kind("rule").front().options.find("watch")->as<std::string>() != "(");
  CHECK(run.result() == undisturbed(text));
}

TEST_CASE("what is taken back is told to go, and may object in vain") {
  const std::string text =
      run_with("\"adamw\"", "[[hooks]]\ntype = \"faulty\"\nstep = 1000\nway = \"throw\"\n");
  auto failing = request("hooks.faulty", "", options("step", Value(std::int64_t{11})));
  auto objecting = request("optimizer", "troubled", options("at", Value("swap_out")), config::Carry::fresh);
  failing.watch = objecting.watch = "9ba";
  LiveRun run(text, registry(), {}, {{7, failing}, {8, objecting}});
  run.fit();
  CHECK(run.count("swap_rolled_back") == 2);
  CHECK(run.logged("[optimizer] troubled at swap_out"));
  CHECK(run.result() == undisturbed(text));
}

TEST_CASE("what comes back is told so, and may object in vain") {
  const std::string text = run_with("\"troubled\"\nat = \"swap_in\"",
                                    "[[hooks]]\ntype = \"faulty\"\nstep = 1000\nway = \"throw\"\n");
  auto failing = request("hooks.faulty", "", options("step", Value(std::int64_t{11})));
  auto other = request("optimizer", "adamw", {}, config::Carry::fresh);
  failing.watch = other.watch = "9ba";
  LiveRun run(text, registry(), {}, {{7, failing}, {8, other}});
  run.fit();
  CHECK(run.count("swap_rolled_back") == 2);
  CHECK(run.logged("[optimizer] troubled at swap_in"));
  CHECK(run.result() == undisturbed(text));
}

TEST_CASE("who was told to come or to go in a swap that is refused is told that it is not so") {
  // No scale makes the schedules meet: that is found when the optimizers have been told.
  const auto refused = [](const std::string& first, const std::string& then) {
    const std::string text = run_with("\"troubled\"\nat = \"" + first + "\"");
    LiveRun run(text, registry());
    run.on_safe_point = [&] {
      if (run->clock().step != 7) return;
      const auto swap = train::Swaps(*run).prepare(
          {request("optimizer", "troubled", options("at", Value(then)), config::Carry::fresh),
           request("schedule", "constant", options("value", Value(0.0)), config::Carry::splice)});
      CHECK_THROWS_WITH(train::Swaps(*run).commit(*swap), Contains("must be above 0"));
    };
    run.fit();
    LiveRun alone(text, registry());
    alone.fit();
    CHECK(run->states().model_digest() == alone->states().model_digest());
    return run.logged("[optimizer] troubled at " + (first == "never" ? then : first));
  };
  CHECK(refused("never", "swap_out"));
  CHECK(refused("swap_in", "never"));
  CHECK_FALSE(refused("never", "never"));
}

TEST_CASE("a watch lasts to the end of the training, its last evaluations included") {
  const std::string text = adamw;
  for (const char* at : {"step", "not_finite"}) {
    Table own = options("at", Value(at));
    own.set("step", Value(std::int64_t{2}));
    auto troubled = request("optimizer", "troubled", own, config::Carry::fresh);
    troubled.watch = "50ba";
    LiveRun run(text, registry(), {}, {{22, troubled}});  // its second step is the run's last
    run.fit();
    CHECK(run.count("swap_rolled_back") == 1);
    CHECK(run.result() == undisturbed(text));
  }
}

TEST_CASE("a client who was told that the run stops is not forgotten over a swap that is taken back") {
  const std::string text = adamw;
  Table own = options("at", Value("not_finite"));
  own.set("step", Value(std::int64_t{2}));
  auto troubled = request("optimizer", "troubled", own, config::Carry::fresh);
  troubled.watch = "50ba";
  LiveRun run(text, registry(), {}, {{7, troubled}});  // its second step is the last, ahead of the stop
  std::future<std::string> told;
  run.on_safe_point = [&] {
    if (run->clock().step != 9 || told.valid()) return;
    told = std::async(std::launch::async, [&] {
      return control::Client(run.directory())
          .ask({.verb = control::Verb::stop}, std::chrono::minutes(1))
          .value("message", "");
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  };
  run.fit();
  CHECK(told.get() == "stops at step 9");
  CHECK(run.count("swap_rolled_back") == 1);
  CHECK(run->clock().step == 7);
}

TEST_CASE("what would have ended the run ends it no more once the swap that led there is taken back") {
  std::string text = adamw;
  text += "[early_stopping]\nmetric = \"val/loss\"\nmode = \"min\"\npatience = 1\n";
  Table own = options("at", Value("not_finite"));
  own.set("step", Value(std::int64_t{2}));
  auto troubled = request("optimizer", "troubled", own, config::Carry::fresh);
  troubled.watch = "50ba";
  LiveRun run(text, registry(), {}, {{8, troubled}});  // its second step is evaluated: the loss is no gain
  run.fit();
  CHECK(run.count("swap_rolled_back") == 1);
  CHECK(run->clock().step == steps);
  CHECK(run.result() == undisturbed(text));
}

TEST_CASE("the status tells the swaps of each slot that stand") {
  const std::string text = run_with(
      "\"adamw\"",
      "[schedule]\ntype = \"constant\"\n[[hooks]]\ntype = \"faulty\"\nstep = 1000\nway = \"throw\"\n");
  auto failing = request("hooks.faulty", "", options("step", Value(std::int64_t{11})));
  failing.watch = "5ba";
  const auto other = request("schedule", "constant", options("value", Value(0.5)));  // it comes again
  LiveRun run(text, registry(), {}, {{7, failing}, {8, other}});
  std::future<control::Status> told;
  run.on_safe_point = [&] {
    if (run->clock().step < 16) return;
    if (!told.valid())
      told = std::async(std::launch::async, [&] {
        return control::Client(run.directory())
            .ask({.verb = control::Verb::status}, std::chrono::minutes(1))
            .get<control::Status>();
      });
    if (told.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
  };
  run.fit();
  std::map<std::string, std::int64_t> made;
  for (const auto& slot : told.get().slots) made[slot.slot] = slot.swaps;
  CHECK(made.at("hooks.faulty") == 0);
  CHECK(made.at("schedule") == 1);
}

TEST_CASE("an evaluation on request adds no safe point") {
  LiveRun run(adamw, registry());
  std::vector<std::int64_t> visited, all(steps);
  std::iota(all.begin(), all.end(), 1);
  std::future<std::string> told;
  run.on_safe_point = [&] {
    visited.push_back(run->clock().step);
    if (run->clock().step == 7)
      told = std::async(std::launch::async, [&] {
        return control::Client(run.directory())
            .ask({.verb = control::Verb::eval}, std::chrono::minutes(1))
            .value("message", "");
      });
    if (told.valid() && told.wait_for(std::chrono::seconds(0)) != std::future_status::ready)
      std::this_thread::sleep_for(std::chrono::milliseconds(200));  // it comes meanwhile
  };
  run.fit();
  CHECK_THAT(told.get(), Contains("evaluated at step"));
  CHECK(visited == all);
}

TEST_CASE("many commands at once are spread over safe points, a few at each") {
  LiveRun run(adamw, registry());
  std::vector<std::future<std::int64_t>> asked;
  run.on_safe_point = [&] {
    if (run->clock().step < 7) return;
    const auto open = [](const std::future<std::int64_t>& each) {
      return each.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
    };
    if (asked.empty())
      for (int i = 0; i < 12; ++i)
        asked.push_back(std::async(std::launch::async, [&] {
          return control::Client(run.directory())
              .ask({.verb = control::Verb::status}, std::chrono::minutes(1))
              .get<control::Status>()
              .step;
        }));
    if (std::any_of(asked.begin(), asked.end(), open))
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // they come meanwhile
  };
  run.fit();
  std::map<std::int64_t, int> obeyed;
  for (std::future<std::int64_t>& each : asked) ++obeyed[each.get()];
  for (const auto& [step, commands] : obeyed) CHECK(commands <= 8);
}

TEST_CASE("moments go across by name, and begin anew where the other has none") {
  const auto handed = [](const std::string& from, const std::string& to, const Table& more = {}) {
    std::pair<State, State> states;
    LiveRun run(run_with(from), registry());
    bool done = false;
    run.on_safe_point = [&] {
      if (run->clock().step != 7 || std::exchange(done, true)) return;
      states.first = optimizer_state(run);
      auto swap = train::Swaps(*run).prepare({request("optimizer", to, more)});
      train::Swaps(*run).commit(*swap);
      states.second = optimizer_state(run);
      run->loop().request(Control::stop_run, "test", "seen enough");  // they are handles: no step more
    };
    run.fit();
    return states;
  };
  const auto [adam, adamw_state] = handed("\"adam\"", "adamw");
  REQUIRE(adam.tensors.size() == 8);
  CHECK(adam.tensors.size() == adamw_state.tensors.size());
  for (const auto& [name, tensor] : adam.tensors)
    CHECK(tensor.const_data_ptr() == adamw_state.tensors.at(name).const_data_ptr());  // by handle
  CHECK((adam.scalars == adamw_state.scalars));

  const auto [sgd, fresh] = handed("\"sgd\"\nmomentum = 0.9", "adam");
  CHECK(sgd.tensors.count("momentum_buffer/fc1.weight") + sgd.tensors.size() >= 4);
  for (const auto& [name, tensor] : fresh.tensors) CHECK(tensor.abs().sum().item<double>() == 0.0);
  for (const auto& [name, scalar] : fresh.scalars) CHECK(scalar == Scalar(std::int64_t{0}));

  // With one moment more than the old one had: that begins at 0, the others and their counts go on.
  const auto [plain, largest] = handed("\"adam\"", "adamw", options("amsgrad", Value(true)));
  for (const auto& [name, tensor] : largest.tensors)
    CHECK((tensor.abs().sum().item<double>() == 0.0) == name.starts_with("max_exp_avg_sq"));
  CHECK((plain.scalars == largest.scalars));
}

TEST_CASE("sgd, adam and adamw follow each other in one run, and the run goes on") {
  LiveRun run(run_with("\"sgd\"\nmomentum = 0.9"), registry(),
              {{5, "optimizer", "adam", {}}, {12, "optimizer", "adamw", {"lr=0.002"}, "", "0ba"}});
  run.fit();
  for (const test::Told& told : run.told()) {
    INFO(told.text);
    CHECK(told.done);
  }
  CHECK(run->live().swaps == 2);
  CHECK(run->config().at("optimizer").type == "adamw");
  CHECK(run->optimizer().groups().front().base_lr == 0.002);
}

TEST_CASE("a schedule that comes in follows its formula at every step") {
  constexpr std::int64_t at = 9, total = steps;
  const auto cosine = [](double p) { return 0.5 * (1.0 + std::cos(std::numbers::pi * p)); };
  const auto linear = [](double p) { return 1.0 - p; };
  const auto share = [](std::int64_t part, std::int64_t whole) {
    return static_cast<double>(part) / static_cast<double>(whole);
  };
  const auto after = [&](config::Carry carry, std::int64_t done) {
    switch (carry) {
      case config::Carry::restart: return cosine(share(done - at, total - at));
      case config::Carry::splice:
        return linear(share(at, total)) / cosine(share(at, total)) * cosine(share(done, total));
      default: return cosine(share(done, total));
    }
  };
  for (const config::Carry carry :
       {config::Carry::state, config::Carry::fresh, config::Carry::restart, config::Carry::splice}) {
    INFO("carry " << static_cast<int>(carry));
    const std::vector<double> seen =
        factors("type = \"linear\"\nend_factor = 0.0\n", {{at, request("schedule", "cosine", {}, carry)}});
    REQUIRE(seen.size() == steps);
    for (std::int64_t done = 0; done < steps; ++done) {
      INFO("after " << done << " steps");
      const double expected = done < at ? linear(share(done, total)) : after(carry, done);
      CHECK(seen[static_cast<std::size_t>(done)] == Approx(expected).epsilon(1e-12).margin(1e-15));
    }
  }
}

TEST_CASE("the scale of a splice stays with its schedule, and goes when another comes in") {
  constexpr std::int64_t at = 9, options_at = 12, other_at = 15;
  const auto share = [](std::int64_t done) { return static_cast<double>(done) / steps; };
  const auto falling = [&](std::int64_t done, double end) { return 1.0 - (1.0 - end) * share(done); };
  const std::vector<double> seen =
      factors("type = \"constant\"\n",
              {{at, request("schedule", "linear", options("end_factor", Value(0.1)), config::Carry::splice)},
               {options_at, request("schedule", "", options("end_factor", Value(0.3)), config::Carry::state)},
               {other_at, request("schedule", "cosine", {}, config::Carry::state)}});
  REQUIRE(seen.size() == steps);
  const double gain = 1.0 / falling(at, 0.1);
  for (std::int64_t done = 0; done < steps; ++done) {
    INFO("after " << done << " steps");
    const double expected = done < at           ? 1.0
                            : done < options_at ? gain * falling(done, 0.1)
                            : done < other_at   ? gain * falling(done, 0.3)
                                                : 0.5 * (1.0 + std::cos(std::numbers::pi * share(done)));
    CHECK(seen[static_cast<std::size_t>(done)] == Approx(expected).epsilon(1e-12).margin(1e-15));
  }
}

TEST_CASE("schedules that read steps, or are made of others, follow their curves when they come in") {
  constexpr std::int64_t at = 9;
  RunScale scale{.steps_per_epoch = 6, .samples_per_epoch = 96, .samples_per_step = 16, .total_steps = steps};
  const auto part = [](const char* type, const char* budget) {
    return Value(test::table({{"type", type}, {"budget", budget}}));
  };
  const std::pair<const char*, std::pair<const char*, Table>> swaps[] = {
      {"linear", {"rex", {}}},
      {"step", {"wsd", test::table({{"decay", "40%"}})}},
      {"rex", {"sequence", test::table({{"parts", Array{part("constant", "50%"), part("cosine", "25%")}}})}},
      {"cosine", {"chain", test::table({{"parts", Array{part("rex", "100%"), part("step", "20ba")}}})}}};
  for (const auto& [from, swap] : swaps)
    for (const config::Carry carry :
         {config::Carry::state, config::Carry::fresh, config::Carry::restart, config::Carry::splice}) {
      const auto& [to, its_options] = swap;
      INFO(from << " to " << to << ", carry " << static_cast<int>(carry));
      const auto before = test::make<Schedule>(from), after = test::make<Schedule>(to, its_options);
      const ScheduleCurve old(*before, scale);
      CurvePlace place;
      RunScale rest = scale;
      if (carry == config::Carry::restart) {
        place.start = at;
        rest.total_steps -= at;
      }
      if (carry == config::Carry::splice)
        place.gain = old.factor(at) / ScheduleCurve(*after, scale).factor(at);
      const ScheduleCurve fresh(*after, rest, place);
      const std::vector<double> seen = factors("type = \"" + std::string(from) + "\"\n",
                                               {{at, request("schedule", to, its_options, carry)}});
      REQUIRE(seen.size() == steps);
      for (std::int64_t done = 0; done < steps; ++done) {
        INFO("after " << done << " steps");
        CHECK(seen[static_cast<std::size_t>(done)] == (done < at ? old : fresh).factor(done));
      }
    }
}

TEST_CASE("a schedule that gets another budget follows its formula over that one") {
  constexpr std::int64_t at = 9, budget = 14;
  const std::vector<double> seen = factors(
      "type = \"linear\"\nend_factor = 0.0\n",
      {{at, request("schedule", "", options("budget", Value(std::string("14ba"))), config::Carry::state)}});
  REQUIRE(seen.size() == steps);
  for (std::int64_t done = 0; done < steps; ++done) {
    INFO("after " << done << " steps");
    const double length = done < at ? steps : budget;
    CHECK(seen[static_cast<std::size_t>(done)] ==
          Approx(std::max(0.0, 1.0 - static_cast<double>(done) / length)).epsilon(1e-12).margin(1e-15));
  }
}

TEST_CASE("a hook that was disabled meanwhile stays so") {
  // Disabled between the preparation of a swap and its commit: the table that was prepared has it yet.
  LiveRun run(adamw +
                  "[[hooks]]\ntype = \"faulty\"\nat = \"batch_end\"\nstep = 6\nway = \"throw\"\non_error = "
                  "\"disable\"\n",
              registry());
  std::unique_ptr<train::PreparedSwap> swap;
  run.on_safe_point = [&] {
    if (run->clock().step == 5) swap = train::Swaps(*run).prepare({request("optimizer")});
    if (run->clock().step == 7) train::Swaps(*run).commit(*swap);
  };
  run.fit();
  std::size_t fires = 0;
  run->bus().each_hook(Event::batch_end, [&](const std::string& id) { fires += id == "faulty"; });
  CHECK(fires == 0);
  CHECK(run.result() == undisturbed(adamw));
}

}  // namespace swap_tests
