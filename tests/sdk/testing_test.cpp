// The fakes that plugins are tested with: what they let pass and what they refuse.
#include <algorithm>
#include <chrono>
#include <thread>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <catch2/catch.hpp>

#include <trainyard/error.hpp>
#include <trainyard/helpers/gather.hpp>
#include <trainyard/hook.hpp>
#include <trainyard/optimizer.hpp>
#include <trainyard/schedule.hpp>
#include <trainyard/testing/host.hpp>
#include <trainyard/testing/plugin.hpp>
#include <trainyard/testing/ranks.hpp>
#include <trainyard/testing/records.hpp>
#include <trainyard/testing/run.hpp>
#include <trainyard/testing/state.hpp>
#include <trainyard/testing/store.hpp>
#include <trainyard/testing/workshop.hpp>

namespace testing_tests {

using namespace trainyard;
using Catch::Contains;
using testing::FakeHost;
using testing::Made;
using testing::TinyRun;

namespace {

std::string shipped(const std::string& kind, const std::string& name) {
  return std::string(TRAINYARD_PLUGIN_DIR) + "/" + kind + "/lib" + name + ".so";
}
std::string faulty(const std::string& name) {
  return std::string(TRAINYARD_BINARY_DIR) + "/tests/faulty/hook/lib" + name + ".so";
}

}  // namespace

TEST_CASE("a plugin under test has checked options") {
  const std::string step = shipped("schedule", "step");
  Made<Schedule> plugin(step, {{"gamma", 0.5}, {"every", "10ba"}});
  plugin->open({.total_steps = 100});
  CHECK(plugin->factor({.progress = 0.1, .step = 10, .steps = 100}) == Approx(0.5));
  const auto says = [&](testing::OptionList options, const std::string& what) {
    CHECK_THROWS_WITH(Made<Schedule>(step, options), Contains(what));
  };
  says({{"gama", 0.5}}, "`gama` is unknown");
  says({{"gamma", 1.5}}, "`gamma` is 1.5");
  says({{"gamma", "half"}}, "`gamma` is a string, is to be a float");
  says({{"every", "soon"}}, "no duration");
  says({{"every", Value(Array{"1ba"})}}, "option `every` is not to be a list");
  says({{"warmup_curve", "steep"}}, "none of its words");
  CHECK_THROWS_WITH(Made<Optimizer>(shipped("optimizer", "sgd")), Contains("`lr` is required"));
  CHECK_THROWS_WITH(Made<Optimizer>(shipped("optimizer", "adamw"), {{"lr", 0.1}, {"betas", 0.9}}),
                    Contains("option `betas` is to be a list"));
  CHECK_THROWS_WITH(Made<Optimizer>(step),
                    Contains("is of kind schedule, and the test wants kind optimizer"));
  CHECK_THROWS_AS(Made<Schedule>("/nowhere.so"), PluginError);
}

TEST_CASE("a fake host keeps what is said and gives what was laid ready") {
  FakeHost host;
  host.log(LogLevel::info, "all is well");
  CHECK(host.logged("well"));
  CHECK_FALSE(host.logged("well", LogLevel::warning));
  host.metric("norm", 1.0);
  host.metric("norm", 2.0);
  CHECK(host.metrics["norm"] == std::vector<double>{1.0, 2.0});
  host.swap("schedule", "rex", {"floor=0.1"});
  CHECK(host.swaps.front().type == "rex");
  CHECK(host.random("a").bits(0) == host.random("a").bits(0));
  CHECK(host.random("a").bits(0) != host.random("b").bits(0));
  CHECK_THROWS_AS(host.batches("val", 1), ConfigError);
  host.data["val"] = {testing::tiny_batch(testing::tiny_schema(), 4)};
  CHECK(host.batches("val", 9).size() == 1);
  CHECK_THROWS_AS(host.make("schedule", {}), ConfigError);
}

TEST_CASE("threads of a fake host are real, end with it, and their errors are kept") {
  bool stopped = false;
  {
    FakeHost host;
    const auto ending = host.thread("waits", [&](std::stop_token stop) {
      while (!stop.stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      stopped = true;
    });
    auto failing = host.thread("fails", [](std::stop_token) { throw std::runtime_error("on its own"); });
    failing.reset();  // joins
    CHECK(host.thread_errors() == std::vector<std::string>{"on its own"});
  }
  CHECK(stopped);
}

TEST_CASE("a tiny run fires the events of a step in their order") {
  TinyRun run({.micros = 2, .steps = 4});
  run.step();
  using enum Event;
  const std::vector<Event> micro = {micro_start, before_forward,  after_forward,  before_loss,
                                    after_loss,  before_backward, after_backward, micro_end};
  std::vector<Event> expected = {init,        model_ready,  optimizer_ready, fit_start,
                                 epoch_start, before_fetch, after_fetch,     batch_start};
  for (int i = 0; i < 2; ++i) expected.insert(expected.end(), micro.begin(), micro.end());
  expected.insert(expected.end(), {before_step, after_step, batch_end, safe_point});
  CHECK((run.events() == expected));
  run.step(3);
  CHECK(run.clock().epoch == 2);
  CHECK(run.clock().step == 4);
}

TEST_CASE("a tiny run takes the step that its gradients say") {
  TinyRun run;
  const std::vector<NamedTensor> before = run.weights();
  run.step();
  for (std::size_t i = 0; i < before.size(); ++i) {
    const at::Tensor expected = before[i].tensor - run.gradients()[i].tensor * 0.1;
    CHECK(run.weights()[i].tensor.allclose(expected, 1e-6, 1e-7));
  }
  run.evaluate();
  CHECK(run.metrics()["val/loss"] > 0.0);
  CHECK(run.events().back() == Event::eval_end);
}

TEST_CASE("micro-batches of a tiny run weigh as one batch does") {
  TinyRun run({.micros = 3});
  run.step();
  // Summed up with their shares: as large as those of one batch, not three times as large.
  TinyRun one({.micros = 1, .samples = 24});
  one.step();
  const double three = run.gradients()[0].tensor.norm().item().toDouble();
  const double whole = one.gradients()[0].tensor.norm().item().toDouble();
  CHECK(three < 2.0 * whole);
}

TEST_CASE("a tiny run names a hook that writes what it did not declare") {
  for (const std::string region : {"nothing", "model", "grads"}) {
    Made<Hook> careless(faulty("careless"), {{"into", region}});
    TinyRun run;
    run.add(careless);
    if (region == "nothing")
      run.step();
    else
      CHECK_THROWS_WITH(run.step(), Contains("careless changed fc1.weight at before_step") &&
                                        Contains("add .writes(Region::" + region + ")"));
  }
}

TEST_CASE("a tiny run obeys what hooks ask for, and keeps it") {
  Made<Hook> asking(faulty("asking"), {{"ask", "skip_step"}, {"at", "before_step"}, {"step", 2}});
  TinyRun run;
  run.add(asking);
  run.step();
  const std::vector<NamedTensor> before = run.weights();
  run.step();
  CHECK(run.weights()[0].tensor.equal(before[0].tensor));
  CHECK(std::ranges::count(run.events(), Event::step_skipped) == 1);
  REQUIRE(run.requests().size() == 1);
  CHECK(run.requests()[0].plugin == "asking");
  CHECK(run.requests()[0].reason == "as it was told");
  run.step();
  CHECK_FALSE(run.weights()[0].tensor.equal(before[0].tensor));

  Made<Hook> wrong(faulty("asking"), {{"ask", "skip_step"}, {"at", "batch_end"}, {"step", 1}});
  TinyRun other;
  other.add(wrong);
  CHECK_THROWS_WITH(other.step(), Contains("batch_end does not take skip_step"));
}

TEST_CASE("a step that is to be repeated has the same batch again") {
  Made<Hook> asking(faulty("asking"), {{"ask", "repeat_step"}, {"at", "before_step"}, {"step", 1}});
  TinyRun run;
  run.add(asking);
  run.step();
  CHECK(std::ranges::count(run.events(), Event::before_step) == 2);
  CHECK(std::ranges::count(run.events(), Event::after_step) == 1);
}

TEST_CASE("what a state forgets, and what load does not miss, is named") {
  State a{.owner = "a", .version = "1.0.0", .scalars = {{"step", std::int64_t{1}}}, .tensors = {}};
  a.tensors["mean"] = at::arange(4, at::kFloat);
  State b = testing::copy(a);
  CHECK(testing::differences(a, b).empty());
  b.tensors["mean"].add_(1);
  b.scalars["more"] = true;
  CHECK(testing::differences(a, b) == std::vector<std::string>{"more", "mean"});
  CHECK(a.tensors["mean"].equal(at::arange(4, at::kFloat)));

  Made<Optimizer> adam(shipped("optimizer", "adam"), {{"lr", 0.1}}),
      other(shipped("optimizer", "adam"), {{"lr", 0.1}});
  TinyRun run;
  run.use(*adam);
  run.step(3);
  CHECK_FALSE(testing::round_trip(adam, adam).size() > 0);
  other->open(make_groups(run.network().parameters(), other->common));
  CHECK(testing::differences(adam.saved(), other.saved()).size() > 4);
  CHECK(testing::round_trip(adam, other).empty());
  CHECK(testing::not_missed(adam.saved(), other).empty());
}

TEST_CASE("ranks of a test exchange what they have") {
  std::vector<at::Tensor> all(4), part(4), own(4);
  testing::on_ranks(4, [&](Ranks& ranks) {
    const auto i = static_cast<std::size_t>(ranks.rank());
    all[i] = at::full({3}, ranks.rank() + 1.0);
    ranks.all_reduce(all[i])->wait();
    const auto pair = ranks.group({1, 3});
    if (pair == nullptr) return;
    part[i] = at::full({4}, 0.0);
    pair->all_gather(part[i], at::full({2}, 10.0 * ranks.rank()))->wait();
    own[i] = at::full({2}, 0.0);
    pair->reduce_scatter(own[i], at::arange(4, at::kFloat))->wait();
  });
  for (const at::Tensor& each : all) CHECK(each.equal(at::full({3}, 10.0)));
  CHECK(part[1].equal(part[3]));
  CHECK(part[1][0].item<float>() == 10.0F);
  CHECK(part[1][3].item<float>() == 30.0F);
  CHECK(own[3][0].item<float>() == 4.0F);
}

TEST_CASE("ranks gather texts and states of any length, and wait for each other no earlier than they say") {
  std::vector<std::vector<std::string>> texts(3);
  std::vector<std::vector<std::vector<State>>> states(3);
  std::vector<float> exchanged(3);
  testing::on_ranks(3, [&](Ranks& ranks) {
    const auto i = static_cast<std::size_t>(ranks.rank());
    const at::Tensor one = at::full({2}, 1.0 + ranks.rank()), other = at::full({1}, 5.0 - ranks.rank());
    const std::unique_ptr<RankGroup> pair = ranks.group({0, 1}), back = ranks.group({1, 0});
    if (pair) {  // each has something under way to the other before it takes what the other has for it
      const auto to = (ranks.rank() == 0 ? pair : back)->broadcast(ranks.rank() == 0 ? one : other, 0);
      (ranks.rank() == 0 ? back : pair)->broadcast(ranks.rank() == 0 ? other : one, 0)->wait();
      to->wait();
      exchanged[i] = one[1].item<float>() + other[0].item<float>();
    }
    texts[i] = gather(ranks, std::string(i, 'x'));
    State own;
    own.scalars["rank"] = static_cast<std::int64_t>(i);
    own.tensors["ones"] = at::full({static_cast<std::int64_t>(i), 2}, 1.0);
    states[i] = gather(ranks, std::vector<State>(i, own));
  });
  CHECK((exchanged == std::vector<float>{5.0F, 5.0F, 0.0F}));
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK((texts[i] == std::vector<std::string>{"", "x", "xx"}));
    for (std::size_t rank = 0; rank < 3; ++rank) {
      REQUIRE(states[i].at(rank).size() == rank);
      for (const State& each : states[i][rank]) {
        CHECK(StateReader(each).integer("rank") == static_cast<std::int64_t>(rank));
        CHECK(each.tensors.at("ones").equal(at::full({static_cast<std::int64_t>(rank), 2}, 1.0)));
      }
    }
  }
}

TEST_CASE("states are the same when they have been bytes, and no state is made of a part of them") {
  State whole;
  whole.owner = "sgd";
  whole.version = "1.2.0";
  whole.scalars = {{"yes", true}, {"count", std::int64_t{-7}}, {"rate", 0.1}, {"name", std::string("a b")}};
  whole.tensors["turned"] = at::arange(6, at::kDouble).reshape({2, 3}).t();
  whole.tensors["none"] = at::empty({0, 4}, at::kBool);
  const std::string bytes = to_bytes({whole, State{}});
  const std::vector<State> found = from_bytes(bytes);
  REQUIRE(found.size() == 2);
  CHECK(found[0].owner == "sgd");
  CHECK(found[0].version == "1.2.0");
  CHECK((found[0].scalars == whole.scalars));
  for (const auto& [name, tensor] : whole.tensors) {
    CHECK(found[0].tensors.at(name).dtype() == tensor.dtype());
    CHECK(found[0].tensors.at(name).equal(tensor));
  }
  CHECK((found[1].owner.empty() && found[1].scalars.empty() && found[1].tensors.empty()));
  const std::size_t first = to_bytes({whole}).size();
  for (std::size_t length = 1; length < bytes.size(); ++length)
    if (length != first) CHECK_THROWS_AS(from_bytes(std::string_view(bytes).substr(0, length)), DataError);
}

TEST_CASE("a rank that fails, or asks for something else, fails the others") {
  CHECK_THROWS_WITH(testing::on_ranks(3,
                                      [](Ranks& ranks) {
                                        if (ranks.rank() == 1) throw std::runtime_error("lost");
                                        ranks.all_reduce(at::full({1}, 1.0))->wait();
                                      }),
                    "lost");
  CHECK_THROWS_AS(
      testing::on_ranks(2, [](Ranks& ranks) { ranks.all_reduce(at::full({ranks.rank() + 1}, 1.0))->wait(); }),
      DistributedError);
}

TEST_CASE("a store, a trial and a workshop of a test are what they say") {
  testing::FakeStore store;
  Snapshot snapshot = testing::tiny_snapshot(7);
  store.commit(snapshot);
  snapshot.states[0].tensors.begin()->second.zero_();
  CHECK(store.committed()[0].states[0].tensors.at("fc1.weight")[0][0].item<float>() == 7.0F);
  store.full = true;
  CHECK_THROWS_AS(store.commit(snapshot), DataError);

  testing::FakeWorkshop shop;
  const at::Tensor before = shop.weights()[0].tensor.detach().clone();
  bool moved = false;
  shop.train(2, [&] { moved = !shop.weights()[0].tensor.equal(before); });
  CHECK(moved);
  CHECK(shop.weights()[0].tensor.equal(before));
  CHECK(shop.evaluate("val").at("val/loss") == 0.5);
  CHECK_THROWS_AS(shop.evaluate("train"), ConfigError);
}

}  // namespace testing_tests
