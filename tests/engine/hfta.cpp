// The executor hfta in whole runs: each member of an array comes to what a run of its own comes to.
#include <chrono>
#include <cmath>
#include <map>

#include <ATen/ATen.h>
#include <catch2/catch.hpp>

#include "core/engine/train/run.hpp"
#include "support/live.hpp"
#include "support/run.hpp"
#include "support/trained.hpp"

namespace hfta_tests {

using namespace trainyard;
using Catch::Matchers::Contains;
using test::LiveRun;

namespace {

std::string run_with(const std::string& optimizer, const std::string& more = {}) {
  return R"(
schema = 1
[run]
name = "array"
seed = 3
threads = { intra_op = 1, inter_op = 1 }
[model]
type = "mlp"
layers = [8, 16, 16, 3]
[loss]
type = "cross_entropy"
[[metrics]]
type = "accuracy"
[data]
type = "synthetic"
kind = "classification"
shape = [8]
classes = 3
train = { size = 102, batch_size = 12, micro_batch_size = 4, shuffle = true }
val = { size = 32, batch_size = 12 }
[schedule]
type = "cosine"
[logging]
interval = "1ba"
sinks = []
[trainer]
max_duration = "200ba"
eval_interval = "50ba"
grad_clip = { max = 0.5 }
)" + optimizer +
         more;
}

const std::string adamw =
    "[optimizer]\ntype = \"adamw\"\nlr = 0.01\nweight_decay = 0.01\nbetas = [0.9, 0.999]\n";

const std::vector<std::vector<std::string>> sweep = {{"optimizer.lr=0.001"},
                                                     {"optimizer.lr=0.003", "optimizer.weight_decay=0.1"},
                                                     {"optimizer.lr=0.01", "optimizer.betas=[0.8, 0.99]"},
                                                     {"optimizer.lr=0.02", "optimizer.weight_decay=0.0"},
                                                     {"optimizer.lr=0.005", "optimizer.betas=[0.95, 0.999]"},
                                                     {"optimizer.lr=0.002", "optimizer.weight_decay=0.3"},
                                                     {"optimizer.lr=0.015", "optimizer.betas=[0.5, 0.9]"},
                                                     {"optimizer.lr=0.008", "optimizer.eps=1e-6"}};

std::string array_of(const std::vector<std::vector<std::string>>& members, const std::string& more = {}) {
  std::string text = "[executor]\ntype = \"hfta\"\n" + more;
  for (const std::vector<std::string>& member : members) {
    text += "[[executor.members]]\nset = [";
    for (const std::string& each : member) text += "'" + each + "', ";
    text += "]\n";
  }
  return text;
}

/// Keeps what a run is at one step, as a checkpointer does; the run goes on.
class KeepsStates final : public train::Saver {
 public:
  explicit KeepsStates(std::int64_t at) : at_(at) {}
  std::int64_t every() const override { return at_; }
  void save() override {
    if (!states.empty()) return;
    states = run->states().snapshot().states;
    for (State& state : states)
      for (auto& [name, tensor] : state.tensors) tensor = tensor.detach().clone();
  }
  std::optional<train::Saved> take_committed() override { return std::nullopt; }
  void drain() override {}

  train::Run* run = nullptr;
  std::vector<State> states;

 private:
  std::int64_t at_;
};

/// A run to its end. `sets` as after --set; `from`: states to begin with; `saver` keeps some.
struct Trained {
  train::Run run;

  explicit Trained(const std::string& text, const std::vector<std::string>& sets = {},
                   const std::vector<State>& from = {}, KeepsStates* saver = nullptr,
                   train::LoopHost* host = nullptr)
      : run(test::valid(text, sets, test::registry()), test::registry(), {}) {
    run.build_model();
    train::LoopParts parts;
    if (host != nullptr) parts.host = host;
    if (saver != nullptr) {
      saver->run = &run;
      parts.saver = saver;
    }
    run.build_loop(std::move(parts));
    run.loop().fit([&] {
      if (!from.empty()) run.states().restore(from, [](const std::string&) {});
    });
  }

  /// Of the run's network, in a row.
  at::Tensor weights() {
    std::vector<at::Tensor> parts;
    for (const NamedTensor& each : run.network().parameters())
      parts.push_back(each.tensor.detach().reshape(-1));
    return at::cat(parts);
  }
  State executor() {
    for (State& state : run.states().snapshot().states)
      if (state.owner == "executor") return std::move(state);
    FAIL("the executor saved nothing");
    return {};
  }
  /// Of all members, a row each.
  at::Tensor array() { return executor().tensors.at("weights").detach().clone(); }
  double metric(const std::string& name) { return run.loop().latest().at(name); }
};

double difference(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>() / b.abs().max().item<double>();
}

/// Each step magnifies the rounding of the one before.
struct Precision {
  const char* name;
  double most;  ///< that 200 steps come to, relative
  bool each;    ///< to each weight, not to the largest of them
};
constexpr Precision precisions[] = {{"fp32", 2e-3, false}, {"fp64", 1e-9, true}};

void check_weights(const at::Tensor& found, const at::Tensor& expected, const Precision& precision) {
  CHECK(difference(found, expected) <= precision.most);
  if (precision.each) CHECK(((found - expected) / expected).abs().max().item<double>() <= precision.most);
}

std::vector<std::string> in(const Precision& precision, std::vector<std::string> sets = {}) {
  sets.push_back(std::string("trainer.precision=") + precision.name);
  return sets;
}

}  // namespace

TEST_CASE("members of an array come to what runs of their own come to") {
  const std::string sgd = "[optimizer]\ntype = \"sgd\"\nlr = 0.1\nmomentum = 0.9\n";
  const std::vector<std::vector<std::string>> of_sgd = {{"optimizer.lr=0.1"},
                                                        {"optimizer.lr=0.02", "optimizer.momentum=0.5"},
                                                        {"optimizer.lr=0.05", "optimizer.weight_decay=0.01"}};
  for (const Precision& precision : precisions)
    for (const auto& [optimizer, members] : {std::pair(adamw, sweep), std::pair(sgd, of_sgd)}) {
      Trained array(run_with(optimizer, array_of(members)), in(precision));
      const at::Tensor rows = array.array();
      REQUIRE(rows.size(0) == std::ssize(members));
      for (std::size_t b = 0; b < members.size(); ++b) {
        INFO("member " << b << " of " << optimizer << precision.name);
        Trained alone(run_with(optimizer), in(precision, members[b]));
        const std::string prefix = std::to_string(b) + "/";
        check_weights(rows[static_cast<std::int64_t>(b)], alone.weights(), precision);
        CHECK(array.metric(prefix + "val/loss") ==
              Approx(alone.metric("val/loss")).epsilon(precision.most).margin(1e-3 * precision.most));
        CHECK(array.metric(prefix + "val/accuracy") ==
              Approx(alone.metric("val/accuracy")).margin(1.0 / 32 + 1e-6));
      }
      CHECK(at::equal(array.weights(), rows[0]));
      CHECK(array.metric("val/loss") == array.metric("0/val/loss"));
      CHECK(array.metric("1/val/loss") != array.metric("0/val/loss"));
    }
}

TEST_CASE("a member with a seed of its own begins as a run of that seed") {
  const std::string still = "[optimizer]\ntype = \"sgd\"\nlr = 1e-30\n";
  Trained array(run_with(still, array_of({{"run.seed=3"}, {"run.seed=11"}})));
  const at::Tensor rows = array.array();
  CHECK(at::equal(rows[0], Trained(run_with(still)).weights()));
  CHECK(at::equal(rows[1], Trained(run_with(still), {"run.seed=11"}).weights()));
}

TEST_CASE("a member that goes astray changes no bit of the others") {
  const auto rows_of = [](const std::string& more, const char* lr) {
    std::vector<std::vector<std::string>> members = sweep;
    members[0] = {lr};
    return Trained(run_with(adamw, array_of(members, "leader = 1\n" + more))).array();
  };
  const at::Tensor sound = rows_of("", "optimizer.lr=0.001");
  const at::Tensor astray = rows_of("compact_at = 1.0\n", "optimizer.lr=1e30");
  REQUIRE(astray.size(0) == 8);
  CHECK_FALSE(at::equal(astray[0], sound[0]));
  CHECK(at::equal(astray.narrow(0, 1, 7), sound.narrow(0, 1, 7)));
  // Made smaller by it, at once.
  const at::Tensor left = rows_of("compact_at = 0.0\n", "optimizer.lr=1e30");
  REQUIRE(left.size(0) == 7);
  CHECK(at::equal(left, sound.narrow(0, 1, 7)));
  // A leader that is lost is followed by the first of the others.
  std::vector<std::vector<std::string>> members = sweep;
  members[0] = {"optimizer.lr=1e30"};
  Trained led(run_with(adamw, array_of(members)));
  CHECK(at::equal(led.weights(), sound[1]));
  CHECK_THROWS_WITH(Trained(run_with(adamw, array_of(members, "on_nan = \"stop\"\n"))),
                    Contains("the loss of member 0 is not finite"));
}

TEST_CASE("an array that is made smaller keeps the running statistics of those that are left") {
  const auto trained = [](const std::string& more, const char* lr) {
    std::vector<std::vector<std::string>> members = sweep;
    members[0] = {lr};
    std::string text = run_with(adamw, array_of(members, "leader = 1\n" + more));
    const std::string mlp = "\"mlp\"\nlayers = [8, 16, 16, 3]";
    text.replace(text.find(mlp), mlp.size(),
                 "\"sequential\"\nlayers = [{ type = \"linear\", out = 16 }, { type = \"batch_norm\" }, "
                 "{ type = \"relu\" }, { type = \"linear\", out = 3 }]");
    return std::make_unique<Trained>(text);
  };
  const auto sound = trained("", "optimizer.lr=0.001");
  const auto left = trained("compact_at = 0.0\n", "optimizer.lr=1e30");
  int statistics = 0;
  const State whole = sound->executor();
  for (const auto& [name, tensor] : left->executor().tensors) {
    if (!name.starts_with("statistics/")) continue;
    REQUIRE(tensor.size(0) == 7);
    CHECK(at::equal(tensor, whole.tensors.at(name).narrow(0, 1, 7)));
    CHECK_FALSE(at::equal(tensor[0], tensor[1]));
    ++statistics;
  }
  CHECK(statistics == 2);
  for (const char* metric : {"1/val/loss", "4/val/loss", "7/val/loss"})
    CHECK(left->metric(metric) == sound->metric(metric));
}

TEST_CASE(
    "a member that is frozen stays so in a run that is resumed, though its loss would be finite again") {
  // One sample is so far away that a member of large weights has no finite loss of its batch, and of no other.
  std::string rows;
  for (int row = 0; row < 96; ++row) {
    rows += row == 50 ? "1e10" : std::to_string(row * 7 % 11);
    for (int column = 1; column < 8; ++column) rows += "," + std::to_string((row * 7 + column * 3) % 11);
    rows += "," + std::to_string(row % 3) + "\n";
  }
  const test::Folder folder;
  std::string text = run_with("[optimizer]\ntype = \"sgd\"\nlr = 0.1\n",
                              array_of({{"optimizer.lr=0.01"}, {"optimizer.lr=1e30"}}, "compact_at = 1.0\n"));
  const auto put = [&](const std::string& in, const std::string& place) {
    text.replace(text.find(place), place.size(), in);
  };
  put("[8, 3]", "[8, 16, 16, 3]");
  put("type = \"csv\"\npath = \"" + folder.write("rows.csv", rows) + "\"\n",
      "type = \"synthetic\"\nkind = \"classification\"\nshape = [8]\n");
  put("", "size = 102, ");
  put("", "size = 32, ");
  KeepsStates saver(100);
  Trained undisturbed(text, {}, {}, &saver);
  const at::Tensor weights = undisturbed.array();
  REQUIRE(weights.isfinite().all().item<bool>());
  for (const State& state : saver.states)  // it is frozen by then
    if (state.owner == "executor") REQUIRE(at::equal(state.tensors.at("weights")[1], weights[1]));
  CHECK(at::equal(Trained(text, {}, saver.states).array(), weights));
}

TEST_CASE("an array that is resumed comes to the bits of one that was not, made smaller or not") {
  const auto precision = GENERATE("fp32", "fp64");
  const std::vector<std::string> sets = {std::string("trainer.precision=") + precision};
  // So much that the loss is not finite.
  const std::string astray = precision == std::string("fp32") ? "optimizer.lr=1e30" : "optimizer.lr=1e300";
  for (const std::string& lr : {std::string("optimizer.lr=0.001"), astray}) {
    std::vector<std::vector<std::string>> members = sweep;
    members[2] = members[3] = members[5] = members[6] = {lr};
    const std::string text = run_with(adamw, array_of(members));
    KeepsStates saver(100);
    Trained undisturbed(text, sets, {}, &saver);
    REQUIRE_FALSE(saver.states.empty());
    Trained resumed(text, sets, saver.states);
    CHECK(at::equal(resumed.array(), undisturbed.array()));
    CHECK(resumed.array().size(0) == (lr == astray ? 4 : 8));
    CHECK(resumed.metric("7/val/loss") == undisturbed.metric("7/val/loss"));
  }
}

TEST_CASE("a member is taken out of an array into a plain run, and put into one") {
  const std::string text = run_with(adamw, array_of(sweep, "leader = 4\n"));
  for (const Precision& precision : precisions) {
    INFO(precision.name);
    const std::vector<std::string> sets = in(precision), of_member = in(precision, sweep[4]);
    KeepsStates saver(100);
    Trained array(text, sets, {}, &saver);
    CHECK(at::equal(array.weights(), array.array()[4]));
    // Out: the checkpoint is that of a plain run of the member.
    Trained alone(run_with(adamw), of_member, saver.states);
    check_weights(alone.weights(), array.array()[4], precision);
    // Not by chance: with an optimizer that begins anew it goes elsewhere.
    std::vector<State> bare = saver.states;
    std::erase_if(bare, [](const State& state) { return state.owner == "optimizer"; });
    CHECK(difference(Trained(run_with(adamw), of_member, bare).weights(), array.array()[4]) > 1e-2);
    // In: a plain run goes on as the leader.
    KeepsStates plain_saver(100);
    Trained plain(run_with(adamw), of_member, {}, &plain_saver);
    Trained with(text, sets, plain_saver.states);
    check_weights(with.array()[4], plain.weights(), precision);
  }
}

TEST_CASE("an array that is resumed may go on with some of its members") {
  KeepsStates saver(100);
  Trained undisturbed(run_with(adamw, array_of(sweep)), {}, {}, &saver);
  Trained some(run_with(adamw, array_of(sweep, "leader = 4\nonly = [1, 4, 6]\n")), {}, saver.states);
  const at::Tensor rows = some.array(), all = undisturbed.array();
  REQUIRE(rows.size(0) == 3);
  for (const auto& [row, member] : {std::pair(0, 1), std::pair(1, 4), std::pair(2, 6)})
    CHECK(at::equal(rows[row], all[member]));
  CHECK(at::equal(some.weights(), all[4]));
  CHECK(some.metric("6/val/loss") == undisturbed.metric("6/val/loss"));
  CHECK(some.metric("val/loss") == undisturbed.metric("4/val/loss"));
  // What the others came to before is no longer said of the run.
  CHECK(undisturbed.run.loop().latest().contains("0/val/loss"));
  CHECK_FALSE(some.run.loop().latest().contains("0/val/loss"));
  CHECK_FALSE(some.run.loop().latest().contains("0/train/loss"));
  // From the beginning, too.
  CHECK(
      at::equal(Trained(run_with(adamw, array_of(sweep, "leader = 6\nonly = [6, 1]\n"))).array()[1], all[6]));
}

TEST_CASE("an array that is resumed keeps its members, and their numbers may change") {
  std::vector<std::vector<std::string>> members = sweep;
  members[1].emplace_back("run.seed=7");
  members[3] = {"optimizer.lr=1e30"};
  const std::string text = run_with(adamw, array_of(members, "compact_at = 0.0\n"));
  KeepsStates saver(100);
  Trained undisturbed(text, {}, {}, &saver);
  const auto resumed = [&](const std::vector<std::vector<std::string>>& then, const std::string& more = {}) {
    return Trained(run_with(adamw, array_of(then, "compact_at = 0.0\n" + more)), {}, saver.states).array();
  };
  CHECK(at::equal(resumed(members), undisturbed.array()));
  std::vector<std::vector<std::string>> other = members;
  other[0] = {"optimizer.lr=0.02"};
  const at::Tensor rows = resumed(other);
  CHECK_FALSE(at::equal(rows[0], undisturbed.array()[0]));
  CHECK(at::equal(rows.narrow(0, 1, 6), undisturbed.array().narrow(0, 1, 6)));
  other = members;
  other.emplace_back();
  CHECK_THROWS_WITH(resumed(other), Contains("of 8 members, executor.members of 9"));
  other.resize(7);
  CHECK_THROWS_WITH(resumed(other), Contains("of 8 members, executor.members of 7"));
  other = members;
  other[1].back() = "run.seed=8";
  CHECK_THROWS_WITH(resumed(other), Contains("member 1") && Contains("run.seed = 7 and has 8"));
  CHECK_THROWS_WITH(resumed(members, "only = [0, 3]\n"), Contains("member 3, which has left the array"));
}

TEST_CASE(
    "what a hook makes of the numbers of the optimizer, each member has of its own, also beyond a resume") {
  const auto hook = [](const std::string& with, int group) {
    return "[[hooks]]\ntype = \"meddling\"\nwith = \"" + with +
           "\"\nstep = 20\nfactor = 0.1\ngroup = " + std::to_string(group) + "\n";
  };
  const std::string grouped = adamw + "groups = [{ match = [\"*.bias\"], lr_factor = 2.0 }]\n";
  const std::vector<std::vector<std::string>> members(sweep.begin(), sweep.begin() + 3);
  for (const auto& [optimizer, changes] : {std::pair(adamw, hook("rate", -1)),
                                           {adamw, hook("decay", -1)},
                                           {grouped, hook("rate", -1)},
                                           {grouped, hook("rate", 1)}})
    for (const Precision& precision : precisions) {
      INFO(optimizer << changes << precision.name);
      const std::string text = run_with(optimizer, array_of(members) + changes);
      const std::vector<std::string> sets = in(precision, {"trainer.max_duration=50ba"});
      KeepsStates saver(30);
      Trained array(text, sets, {}, &saver);
      const at::Tensor rows = array.array();
      CHECK(at::equal(Trained(text, sets, saver.states).array(), rows));
      for (std::size_t b = 0; b < members.size(); ++b) {
        INFO("member " << b);
        std::vector<std::string> own = sets;
        own.insert(own.end(), members[b].begin(), members[b].end());
        check_weights(rows[static_cast<std::int64_t>(b)],
                      Trained(run_with(optimizer, changes), own).weights(), precision);
      }
      CHECK(difference(Trained(run_with(optimizer, array_of(members)), sets).array(), rows) > 1e-3);
    }
}

TEST_CASE("a swap of the optimizer is one of each member, also where the array was made smaller before") {
  const auto options = [](double lr) {
    Table table;
    table.set("lr", lr);
    table.set("momentum", 0.9);
    return table;
  };
  using config::Carry;
  struct Swap {
    std::string type;
    Carry carry;
  };
  for (const Swap& swap :
       {Swap{"sgd", Carry::state}, Swap{"adamw", Carry::fresh}, Swap{"adamw", Carry::state}}) {
    INFO(swap.type << (swap.carry == Carry::fresh ? ", which takes nothing over" : ""));
    const auto swapped = [&](const std::string& text, double lr) {
      Table table = options(lr);
      if (swap.type == "adamw") table.erase("momentum");
      LiveRun run(text + "[[hooks]]\ntype = \"meddling\"\nwith = \"rate\"\nstep = 60\nfactor = 0.7\n",
                  test::registry(), {},
                  {{100, {.slot = "optimizer", .type = swap.type, .options = table, .carry = swap.carry}}});
      run.fit();
      CHECK(run->live().swaps == 1);
      std::map<std::string, at::Tensor> all;
      for (const State& state : run->states().snapshot().states)
        for (const auto& [name, tensor] : state.tensors)
          all[state.owner + "/" + name] = tensor.detach().clone();
      return all;
    };
    const std::vector<std::vector<std::string>> members = {
        {"optimizer.lr=0.002"}, {"optimizer.lr=1e30"}, {"optimizer.lr=0.01"}};
    const at::Tensor rows =
        swapped(run_with(adamw, array_of(members, "compact_at = 0.0\n")), 0.5).at("executor/weights");
    REQUIRE(rows.size(0) == 2);
    for (const auto& [row, lr] : {std::pair(0, 0.002), std::pair(1, 0.01)}) {
      std::string own = adamw;
      own.replace(own.find("0.01"), 4, std::to_string(lr));
      std::vector<at::Tensor> parts;
      const auto alone = swapped(run_with(own), lr);
      Trained names(run_with(own), {"trainer.max_duration=1ba"});
      for (const NamedTensor& each : names.run.network().parameters())
        parts.push_back(alone.at("model/" + each.name).reshape(-1));
      CHECK(difference(rows[row], at::cat(parts)) < 5e-3);
    }
  }
}

TEST_CASE("what an array cannot do is refused") {
  const auto fit = [](const std::string& text) { Trained run(text); };
  CHECK_THROWS_WITH(fit(run_with(adamw, array_of({{"trainer.max_duration=3ba"}, {}}))),
                    Contains("trainer.max_duration=3ba") && Contains("[optimizer] and in run.seed"));
  CHECK_THAT(
      test::resolve(run_with(adamw, array_of({{}, {}})), {"trainer.precision=bf16-mixed"}).findings.text(),
      Contains("hfta") && Contains("trainer.precision"));
  CHECK_THROWS_WITH(fit(run_with(adamw, array_of({{"optimizer.lr=-1"}, {}}))), Contains("optimizer.lr"));
  CHECK_THROWS_WITH(fit(run_with(adamw, array_of({{}, {}}, "leader = 2\n"))),
                    Contains("executor.leader = 2"));
  CHECK_THROWS_WITH(fit(run_with(adamw, array_of({{}, {}}, "only = [1]\n"))),
                    Contains("executor.leader = 0 is not among"));
  CHECK_THROWS_WITH(fit(run_with(adamw, array_of({{}, {}}, "only = [0, 2]\n"))),
                    Contains("executor.only names member 2"));
  CHECK_THROWS_WITH(fit(run_with(adamw, array_of({{"optimizer.lr=0.1"}}))), Contains("trained plainly"));
}

namespace {

/// A run of 60 steps over small images, else as run_with has it: by a LeNet, or by a convolution with a batch norm.
std::string images_with(const std::string& optimizer, const std::string& more = {}, bool norm = false) {
  std::string text = run_with(optimizer, more);
  const auto put = [&](const std::string& in, const std::string& place) {
    REQUIRE(text.find(place) != std::string::npos);
    text.replace(text.find(place), place.size(), in);
  };
  if (!norm)
    put("\"lenet\"\nchannels = [6, 16]\nhidden = [20]", "\"mlp\"\nlayers = [8, 16, 16, 3]");
  else
    put("\"sequential\"\nlayers = [{ type = \"conv2d\", out = 6, kernel = 3 }, { type = \"batch_norm\" }, "
        "{ type = \"relu\" }, { type = \"flatten\" }, { type = \"linear\", out = 3 }]",
        "\"mlp\"\nlayers = [8, 16, 16, 3]");
  put("[1, 14, 14]", "[8]");
  put("\"60ba\"", "\"200ba\"");
  put("\"20ba\"", "\"50ba\"");
  return text;
}

const std::string by_plan = "passes = \"compiled\"\n";
const std::vector<std::vector<std::string>> three(sweep.begin(), sweep.begin() + 3);

}  // namespace

TEST_CASE("members whose passes are compiled come to what runs of their own in double precision come to") {
  for (const std::string& dropout :
       {std::string(), std::string("[model.dropout]\ntype = \"standard\"\np = 0.2\n")})
    for (const bool norm : {false, true}) {
      if (norm && !dropout.empty()) continue;  // that network has no place for one
      INFO(dropout << (norm ? "batch norm" : "LeNet"));
      const auto text = [&](const std::string& more) { return images_with(adamw, dropout + more, norm); };
      Trained array(text(array_of(three, by_plan)));
      const at::Tensor rows = array.array();
      for (std::size_t b = 0; b < three.size(); ++b) {
        INFO("member " << b);
        Trained exact(text(""), in(precisions[1], three[b])), plain(text(""), in(precisions[0], three[b]));
        const at::Tensor row = rows[static_cast<std::int64_t>(b)];
        CHECK(difference(row, exact.weights()) <=
              std::max(2e-4, 6.0 * difference(plain.weights(), exact.weights())));
        CHECK(array.metric(std::to_string(b) + "/val/loss") ==
              Approx(exact.metric("val/loss")).epsilon(2e-3).margin(1e-6));
      }
    }
}

TEST_CASE("a member whose passes are compiled draws the dropout of its own seed") {
  const auto rows = [](const std::string& passes) {
    return Trained(images_with(adamw, "[model.dropout]\ntype = \"standard\"\np = 0.2\n" +
                                          array_of({{}, {"run.seed=11"}}, passes)))
        .array();
  };
  CHECK(difference(rows(by_plan), rows("passes = \"eager\"\n")) < 1e-3);
}

TEST_CASE("an array whose passes are compiled is resumed to the bit, made smaller or not, whole or in part") {
  for (const char* const dropout : {"", "[model.dropout]\ntype = \"standard\"\np = 0.2\n"}) {
    const auto text = [&](const std::string& array) { return images_with(adamw, dropout + array); };
    std::vector<std::vector<std::string>> members = sweep;
    KeepsStates saver(30);
    Trained undisturbed(text(array_of(members)), {}, {}, &saver);
    const at::Tensor all = undisturbed.array();
    CHECK(at::equal(Trained(text(array_of(members)), {}, saver.states).array(), all));
    const at::Tensor some =
        Trained(text(array_of(members, "leader = 4\nonly = [1, 4, 6]\n")), {}, saver.states).array();
    REQUIRE(some.size(0) == 3);
    for (const auto& [row, member] : {std::pair(0, 1), std::pair(1, 4), std::pair(2, 6)})
      CHECK(at::equal(some[row], all[member]));
    // One goes astray, and the array is made smaller: no bit of the others changes.
    members[2] = {"optimizer.lr=1e30"};
    KeepsStates later(30);
    Trained smaller(text(array_of(members, "compact_at = 0.0\n")), {}, {}, &later);
    const at::Tensor left = smaller.array();
    REQUIRE(left.size(0) == 7);
    for (int row = 0; row < 7; ++row) CHECK(at::equal(left[row], all[row < 2 ? row : row + 1]));
    CHECK(at::equal(Trained(text(array_of(members, "compact_at = 0.0\n")), {}, later.states).array(), left));
  }
}

TEST_CASE("how an array's passes run is chosen, said and refused") {
  const auto said = [](const std::string& text, const std::vector<std::string>& sets = {}) {
    test::Trained run;
    REQUIRE(run.train(text, sets) == 0);
    return run.log();
  };
  const std::string array = array_of(three);
  CHECK_THAT(said(images_with(adamw, array)), Contains("passes are compiled") && Contains("conv1"));
  CHECK_THAT(said(images_with(adamw, array_of(three, "passes = \"eager\"\n"))),
             !Contains("passes are compiled"));
  CHECK_THAT(said(images_with(adamw, array), {"trainer.precision=fp64"}), !Contains("passes are compiled"));
  CHECK_THAT(said(run_with(adamw, array)), !Contains("passes are compiled"));
  CHECK_THAT(said(run_with(adamw, array_of(three, by_plan))), Contains("passes are compiled"));
  CHECK_THAT(
      test::resolve(images_with(adamw, array_of(three, by_plan)), {"trainer.precision=fp64"}).findings.text(),
      Contains("hfta") && Contains("trainer.precision"));
}

TEST_CASE("an array of one is the plain run, to the bit") {
  CHECK(at::equal(Trained(run_with(adamw, array_of({{}}))).weights(), Trained(run_with(adamw)).weights()));
}

// What the README quotes; not among the tests: engine_tests "[hfta-bench]"
TEST_CASE("an array against one run after another", "[.][hfta-bench]") {
  for (const auto& [layers, size] : {std::pair{"[64, 32, 32, 10]", 32}, {"[64, 128, 10]", 64}}) {
    std::string text = R"(
schema = 1
[run]
name = "bench"
threads = { intra_op = 1, inter_op = 1 }
[model]
type = "mlp"
layers = )" + std::string(layers) +
                       R"(
[loss]
type = "cross_entropy"
[data]
type = "synthetic"
kind = "classification"
shape = [64]
classes = 10
train = { size = 4096, batch_size = )" +
                       std::to_string(size) + R"( }
[schedule]
type = "constant"
[logging]
interval = "1000ba"
sinks = []
[trainer]
max_duration = "600ba"
)" + adamw;
    const auto seconds = [](const std::string& run) {
      const auto began = std::chrono::steady_clock::now();
      const Trained trained(run);
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    };
    std::map<std::string, double> best;
    for (int round = 0; round < 3; ++round)
      for (const std::size_t members : {1, 2, 4, 8, 16}) {
        std::vector<std::vector<std::string>> sets;
        for (std::size_t b = 0; b < members; ++b)
          sets.push_back({"optimizer.lr=0.0" + std::to_string(b + 1)});
        if (members == 1) sets = {{}};
        for (const bool array : {true, false}) {
          const double took = seconds(array ? text + array_of(sets) : text);
          double& least = best[std::to_string(members) + (array ? " array" : " plain")];
          least = least == 0.0 ? took : std::min(least, took);
        }
      }
    for (const std::size_t members : {1, 2, 4, 8, 16})
      WARN("mlp " << layers << ", N = " << size << ", B = " << members << ": "
                  << static_cast<double>(members) * best[std::to_string(members) + " plain"] /
                         best[std::to_string(members) + " array"]
                  << " times the models a second");
  }
}

}  // namespace hfta_tests
