// Every shipped plugin, swapped with itself at every step of a run: nothing of the training may notice.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <set>

#include "contract/host_run.hpp"
#include "contract/process.hpp"
#include "core/plugins/kinds.hpp"
#include "support/run.hpp"

namespace swap_tests {

using namespace trainyard;
using namespace trainyard::contract;
using Catch::Matchers::Equals;
using plugins::PluginFile;
using test::shipped;

namespace {

/// The slot of a run as a swap calls it. The plugins of data are swapped together.
std::string address_of(const config::SlotConfig& slot) {
  return slot.kind == "dataset" ? "data" : slot.address();
}

std::string address_of(const PluginFile& file, const std::string& text) {
  const config::RunConfig config = test::valid(text);
  for (const config::SlotConfig& slot : config.slots)
    if (slot.kind == file.manifest.kind && slot.type == file.manifest.name) return address_of(slot);
  FAIL("the run has no slot with the " << title(file));
  return {};
}

std::string swap_at(std::int64_t step, const std::string& slot, const std::string& watch) {
  return "[[swap]]\nat = \"" + std::to_string(step) + "ba\"\nslot = \"" + slot + "\"\nwatch = \"" + watch +
         "\"\n";
}

void check_same(const Outcome& swapped, const Outcome& plain, std::int64_t swaps) {
  CHECK_THAT(swapped.error, Equals(""));
  CHECK(swapped.exit_code == 0);
  CHECK(swapped.swaps == swaps);
  CHECK(swapped.steps == plain.steps);
  CHECK(swapped.model == plain.model);
  CHECK(swapped.optimizer == plain.optimizer);
  CHECK(swapped.loss == plain.loss);
}

}  // namespace

TEST_CASE("every plugin is swapped with itself at every step, and the run ends with the same bits") {
  std::set<std::string> kinds;
  const std::vector<PluginFile> tried = drawn(alone());
  for (const PluginFile& file : tried) {
    const std::string text = host_run(file).text();
    const std::string slot = address_of(file, text);
    const Outcome plain = train_apart(text);
    REQUIRE(plain.steps > 2);
    const auto swapped = [&](const std::string& watch) {
      std::string swaps = text;
      for (std::int64_t step = 1; step < plain.steps; ++step) swaps += swap_at(step, slot, watch);
      return swaps;
    };
    const struct { const char *watch, *workers; } ways[] = {{"0ba", "0"}, {"0ba", "2"}, {"2ba", "0"}};
    for (const auto& way : ways) {
      INFO(title(file) << " in slot " << slot << ", watch " << way.watch << ", workers " << way.workers);
      check_same(train_apart(swapped(way.watch), {std::string("data.workers=") + way.workers}), plain,
                 plain.steps - 1);
    }
    kinds.insert(file.manifest.kind);
  }
  for (const plugins::KindRow& row : plugins::kinds)
    if (row.beside) kinds.insert(row.kind.name);  // no part of a training
  kinds.insert("compressor");                     // needs ranks, which trade plugins together
  if (tried.size() == alone().size())
    CHECK(kinds.size() == std::size(plugins::kinds));  // a running training refuses no kind
}

TEST_CASE("all slots of a run are swapped, one after the other at each of its steps") {
  for (const char* host : {"optimizer adamw", "dropout standard", "hook ema", "metric accuracy"}) {
    const auto file = std::find_if(shipped().files().begin(), shipped().files().end(),
                                   [&](const PluginFile& each) { return title(each) == host; });
    REQUIRE(file != shipped().files().end());
    const std::string text = host_run(*file).text();
    const Outcome plain = train_apart(text);
    std::set<std::string> slots;
    const config::RunConfig config = test::valid(text);
    for (const config::SlotConfig& slot : config.slots) slots.insert(address_of(slot));
    std::string swapped = text;
    for (std::int64_t step = 1; step < plain.steps; ++step)
      for (const std::string& slot : slots) swapped += swap_at(step, slot, "0ba");
    INFO(host << ", " << slots.size() << " slots");
    check_same(train_apart(swapped, {"data.workers=2"}), plain,
               (plain.steps - 1) * static_cast<std::int64_t>(slots.size()));
  }
}

namespace {

/// Entries that swap another plugin in after the second step, and the first one back after the fourth.
std::string out_and_back(const PluginFile& file, const PluginFile& other, const std::string& slot) {
  const auto entry = [&](const PluginFile& plugin, int step) {
    return swap_at(step, slot, "0ba") + "type = \"" + plugin.manifest.name + "\"\n" +
           host_run(plugin).options;
  };
  return entry(other, 2) + entry(file, 4);
}

/// Beginning with the one that comes after it.
std::vector<PluginFile> others_of_kind(const PluginFile& file) {
  std::vector<PluginFile> before, after;
  for (const PluginFile& other : shipped().files())
    if (other.manifest.kind == file.manifest.kind && other.path != file.path)
      (other.path < file.path ? before : after).push_back(other);
  after.insert(after.end(), before.begin(), before.end());
  return after;
}

/// Kinds that the weights do not depend on.
const std::set<std::string> beside_the_training = {"metric", "sink", "checkpointer", "rule"};
const std::string grower = "executor boosting";

}  // namespace

TEST_CASE("every plugin gives its slot to another of its kind, and comes back") {
  std::set<std::string> alone;
  const std::vector<PluginFile> tried = drawn(contract::alone());
  for (const PluginFile& file : tried) {
    const std::string text = host_run(file).text();
    const std::string slot = address_of(file, text);
    bool exchanged = false;
    for (const PluginFile& other : others_of_kind(file)) {
      INFO(title(file) << " and " << other.manifest.name << " in slot " << slot);
      const std::string plan = text + out_and_back(file, other, slot);
      if (!test::resolve(plan).config) continue;
      const Outcome outcome = train_apart(plan);
      if (outcome.swaps == 0) {
        // What does not fit the run's data or model is to be found by `validate`, or to leave
        // the run alone.
        CHECK((outcome.exit_code == 2 || outcome.exit_code == 4));
        CHECK(outcome.error.size() > 20);
        continue;
      }
      CHECK_THAT(outcome.error, Equals(""));
      CHECK(outcome.exit_code == 0);
      CHECK(outcome.swaps == 2);
      CHECK(std::isfinite(outcome.loss));
      if (beside_the_training.contains(file.manifest.kind)) CHECK(outcome.model == train_apart(text).model);
      exchanged = true;
      break;
    }
    if (!exchanged) alone.insert(title(file) == grower ? grower : file.manifest.kind);
  }
  // Another model, what another transform makes of it, or other data does not fit what is trained, of the losses one takes
  // ten classes, and there is one recorder. What grows is trained by one executor. None of the rest may be left out.
  const std::set<std::string> expected = {"dataset", grower, "loss", "model", "recorder", "transform"};
  CHECK(std::ranges::includes(expected, alone));
  if (tried.size() == contract::alone().size()) CHECK(alone == expected);
}

namespace {

/// Lists of the run file whose plugins come and go while a run trains, by kind.
const std::map<std::string, std::string> lists = {
    {"hook", "hooks"}, {"rule", "rules"}, {"metric", "metrics"}, {"sink", "logging.sinks"}};

}  // namespace

TEST_CASE("every plugin of a list comes into a run that trains and goes again") {
  std::set<std::string> kinds;
  std::map<std::string, Outcome> without;  // runs that have no guest, which many plugins share
  const std::vector<PluginFile> tried = drawn(alone());
  for (const PluginFile& file : tried) {
    const auto list = lists.find(file.manifest.kind);
    if (list == lists.end()) continue;
    const std::string bare = host_run(file).without_plugin(), slot = list->second + ".guest";
    const std::string comes = swap_at(2, slot, "0ba") + "change = \"add\"\ntype = \"" + file.manifest.name +
                              "\"\n" + host_run(file).options;
    const std::string goes = swap_at(4, slot, "0ba") + "change = \"remove\"\n";
    INFO(title(file) << "\n" << bare << comes);
    kinds.insert(file.manifest.kind);
    if (!without.contains(bare)) without[bare] = train_apart(bare);
    const Outcome& plain = without[bare];
    const Outcome gone = train_apart(bare + comes + goes);
    CHECK_THAT(gone.error, Equals(""));
    CHECK(gone.exit_code == 0);
    CHECK(gone.swaps == 2);
    CHECK(gone.steps == plain.steps);
    CHECK(std::isfinite(gone.loss));
    if (beside_the_training.contains(file.manifest.kind)) CHECK(gone.model == plain.model);
  }
  if (tried.size() == alone().size()) CHECK(kinds.size() == lists.size());
}

}  // namespace swap_tests
