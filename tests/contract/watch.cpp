// A run with a swap that is watched, killed where its state is in motion, or gone on with another run file:
// it ends with the bits of one that was left alone, and its journal tells every end once.
#include <signal.h>
#include <sys/wait.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>

#include "contract/process.hpp"
#include "core/engine/save/load.hpp"
#include "core/engine/save/store.hpp"
#include "support/folder.hpp"
#include "support/saver.hpp"

namespace watch_tests {

using namespace trainyard;
using namespace trainyard::contract;
using nlohmann::json;

namespace {

const std::string head = R"(
schema = 1
[run]
name = "watch"
seed = 3
resume = "auto"
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
[optimizer]
type = "adamw"
lr = 0.01
[logging]
interval = "1ba"
[[logging.sinks]]
type = "jsonl"
[[hooks]]
type = "faulty"
step = 1000
way = "throw"
)";

std::string planned(int at, const std::string& slot, const std::string& watch, const std::string& rest) {
  return "[[swap]]\nat = \"" + std::to_string(at) + "ba\"\nslot = \"" + slot + "\"\nwatch = \"" + watch +
         "\"\n" + rest + "\n";
}
/// Comes at step 5 and throws in a step of its watch.
std::string failing(int step) {
  return planned(5, "hooks.faulty", "15ba", "step = " + std::to_string(step));
}

/// A run file, trained in processes that can be killed.
class Watched {
 public:
  explicit Watched(const std::string& text, int interval = 2)
      : sets_({"checkpoint.type=full", "checkpoint.interval=" + std::to_string(interval) + "ba"}) {
    rewrite(text);
  }

  void rewrite(const std::string& text) {
    apart_.write(text + "[[hooks]]\ntype = \"killer\"\nplace = \"" + apart_.folder().path("place") + "\"\n");
  }

  void killed(const std::string& place) {
    apart_.folder().write("place", place);
    const int status = apart_.train(sets_);
    INFO(apart_.said());
    CHECK((WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
    std::filesystem::remove(apart_.folder().path("place"));
  }

  /// Trains to the end, with each step told once; the digests.
  std::string ends() {
    const int status = apart_.train(sets_);
    INFO(apart_.said());
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
    std::vector<int> told, all(24);
    std::iota(all.begin(), all.end(), 1);
    for (const std::string& text : test::lines(apart_.run() + "/metrics.jsonl"))
      if (const json line = json::parse(text); line["what"] == "train") told.push_back(line["step"]);
    CHECK(told == all);
    return result()["digest"].dump();
  }

  json result() const { return json::parse(test::read_file(apart_.run() + "/result.json")); }

  /// Trains, and fails; what it said.
  std::string fails(int code) {
    const int status = apart_.train(sets_);
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == code));
    return apart_.said();
  }

  /// The newest checkpoint without the states of some owners, and nothing broken in it but that.
  void drop_from_checkpoint(const std::string& owners) {
    const std::string folder = apart_.run() + "/checkpoints";
    auto loaded = checkpoint::load_newest(folder, [](const std::string&, const std::string&) {});
    REQUIRE(loaded);
    std::erase_if(loaded->states, [&](const State& state) { return state.owner.starts_with(owners); });
    std::filesystem::remove_all(loaded->path);
    checkpoint::Store store(folder, {.keep_last = 9, .keep_every = 0, .keep_best = {}});
    test::Saver saver("full", store);
    saver.plugin->take({.step = loaded->step, .states = loaded->states, .metrics = {}});
    saver.plugin->drain();
  }

  /// Steps of the lines of the journal that tell this.
  std::vector<int> journal(const std::string& what) const {
    std::vector<int> steps;
    for (const std::string& text : test::lines(apart_.run() + "/journal.jsonl"))
      if (const json line = json::parse(text); line["what"] == what) steps.push_back(line["step"]);
    return steps;
  }

 private:
  Apart apart_;
  std::vector<std::string> sets_;
};

std::string undisturbed(const std::string& text) {
  return Watched(text).ends();
}

}  // namespace

TEST_CASE("a run is killed while a swap is taken back, and the swap is taken back once") {
  const std::string text = head + failing(9) + planned(7, "schedule", "0ba", "type = \"rex\"");
  const std::string expected = undisturbed(head + planned(7, "schedule", "0ba", "type = \"rex\""));
  Watched alone(text);  // the second comes again, which makes it no other swap
  CHECK(alone.ends() == expected);
  CHECK(alone.result()["swaps"] == json{{"made", 1}, {"refused", 0}, {"rolled_back", 1}});
  for (const int interval : {2, 100})  // 100: ahead of the first checkpoint
    for (const char* place : {"batch_end 9", "before_load 1", "after_load 1", "batch_end 6 2", "batch_end 10",
                              "before_checkpoint 10"}) {
      if (interval == 100 && std::string(place) == "before_checkpoint 10") continue;
      INFO("a checkpoint every " << interval << " steps, killed at " << place);
      Watched run(text, interval);
      run.killed(place);
      CHECK(run.ends() == expected);
      CHECK(run.journal("swap_rolled_back") == std::vector<int>{5});
    }
}

TEST_CASE("a run that is killed ahead of its first checkpoint keeps to what became of its plan") {
  // A swap that was refused, one that was taken back and one that stands; then the plan has another one.
  const std::string plan =
      planned(3, "optimizer", "0ba", "type = \"troubled\"\noptions = { at = \"swap_in\" }") + failing(9) +
      planned(10, "schedule", "0ba", "type = \"rex\"");
  const std::string more = planned(15, "schedule", "0ba", "type = \"cosine\"");
  // The journal is written beside the run, which would be at its end before that.
  const std::string nap = "[[hooks]]\ntype = \"slow\"\nstep = 11\nseconds = 0.3\nsign = \"/dev/null\"\n";
  Watched run(head + nap + plan, 100);
  run.killed("batch_end 12");
  run.rewrite(head + nap + more + plan);
  run.killed("batch_end 13");
  CHECK(run.ends() == undisturbed(head + planned(10, "schedule", "0ba", "type = \"rex\"") + more));
  CHECK(run.journal("swap_refused") == std::vector<int>{3});
  CHECK(run.journal("swap_rolled_back") == std::vector<int>{5});
}

TEST_CASE("what a changed run file changed inside a watch stays, however often the run is killed after it") {
  const std::string settled = planned(3, "schedule", "0ba", "type = \"rex\"");
  for (const int fails : {1000, 14}) {  // 14: the watch ends badly
    INFO("the watched swap fails at step " << fails);
    const std::string before = head + settled + failing(fails);
    std::string after = before + planned(17, "schedule", "0ba", "type = \"cosine\"");
    after.replace(after.find("0.01"), 4, "0.02");
    const auto changed = [&](const std::vector<std::string>& kills, const std::string& text) {
      Watched run(before);
      run.killed("batch_end 9");
      run.rewrite(text);
      for (const std::string& place : kills) run.killed(place);
      const std::string digest = run.ends();
      CHECK(run.journal("swap_rolled_back") == (fails == 14 ? std::vector<int>{5} : std::vector<int>{}));
      const bool planned_more = text.find("17ba") != std::string::npos;
      CHECK(run.journal("swap") == (planned_more ? std::vector<int>{3, 5, 17} : std::vector<int>{3, 5}));
      return digest;
    };
    const std::string expected = changed({}, after);
    std::string as_slow = after;
    as_slow.replace(as_slow.find("0.02"), 4, "0.01");
    CHECK(changed({}, as_slow) == undisturbed(as_slow));
    CHECK(undisturbed(as_slow) != expected);
    CHECK(changed({"batch_end 13"}, after) == expected);
    CHECK(changed({"batch_end 13", "batch_end 15"}, after) == expected);
    if (fails == 14) {
      CHECK(changed({"before_load 9"}, after) == expected);
      CHECK(changed({"batch_end 9 2", "batch_end 11"}, after) == expected);
    }
    // Without a plan what was made stands, and what was not is gone.
    std::string unplanned = head;
    unplanned.replace(unplanned.find("0.01"), 4, "0.02");
    CHECK(changed({"batch_end 13"}, unplanned) == changed({}, unplanned));
    CHECK(changed({}, unplanned) != expected);
  }
}

TEST_CASE("a schedule that began anew, or was scaled, stands there still, however often the run is killed") {
  for (const char* carry : {"restart", "splice"}) {
    const std::string text =
        head + planned(5, "schedule", "0ba", "type = \"rex\"\ncarry = \"" + std::string(carry) + "\"");
    const std::string expected = undisturbed(text);
    Watched run(text, 2);
    for (const char* place : {"batch_end 9", "batch_end 13", "batch_end 17"}) run.killed(place);
    CHECK(run.ends() == expected);
  }
}

TEST_CASE("a swap that is watched to the end of the training is taken back by what its last step left") {
  const std::string text =
      head + planned(22, "optimizer", "50ba",
                     "type = \"troubled\"\ncarry = \"fresh\"\noptions = { at = \"not_finite\", step = 2 }");
  Watched run(text);
  CHECK(run.ends() == undisturbed(head));
  CHECK(run.journal("swap_rolled_back") == std::vector<int>{22});
  CHECK(run.result()["swaps"] == json{{"made", 0}, {"refused", 0}, {"rolled_back", 1}});
}

TEST_CASE("a checkpoint that lacks what the run was before a watched swap is refused in words") {
  for (const char* owners : {"before/1/", "before/1/model", "before/1/run"}) {
    INFO("without " << owners);
    Watched run(head + failing(1000));
    run.killed("batch_end 9");
    run.drop_from_checkpoint(owners);
    const std::string said = run.fails(4);
    for (const char* word : {"checkpoints/step-00000008", "swap 1 is watched", "--overwrite"})
      CHECK_THAT(said, Catch::Contains(word));
  }
}

}  // namespace watch_tests
