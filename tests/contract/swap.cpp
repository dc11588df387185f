// Every shipped plugin, swapped with itself at every step of a run: nothing of the training may notice.
#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "contract/host_run.hpp"
#include "support/run.hpp"

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
  for (const config::SlotConfig* slot : config.slots())
    if (slot->kind == file.manifest.kind && slot->type == file.manifest.name) return address_of(*slot);
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
  for (const PluginFile& file : shipped().files()) {
    const std::string text = host_run(file).text();
    const std::string slot = address_of(file, text);
    const Outcome plain = train_shortly(text, {}, shipped());
    REQUIRE(plain.steps > 2);
    const auto swapped = [&](const std::string& watch) {
      std::string swaps = text;
      for (std::int64_t step = 1; step < plain.steps; ++step) swaps += swap_at(step, slot, watch);
      return swaps;
    };
    const struct { const char *watch, *workers; } ways[] = {{"0ba", "0"}, {"0ba", "2"}, {"2ba", "0"}};
    for (const auto& way : ways) {
      INFO(title(file) << " in slot " << slot << ", watch " << way.watch << ", workers " << way.workers);
      check_same(train_shortly(swapped(way.watch), {std::string("data.workers=") + way.workers}, shipped()),
                 plain, plain.steps - 1);
    }
    kinds.insert(file.manifest.kind);
  }
  CHECK(kinds.size() == 13);  // a running training refuses no kind
}

TEST_CASE("all slots of a run are swapped, one after the other at each of its steps") {
  for (const char* host : {"optimizer adamw", "dropout standard", "hook ema", "metric accuracy"}) {
    const auto file = std::find_if(shipped().files().begin(), shipped().files().end(),
                                   [&](const PluginFile& each) { return title(each) == host; });
    REQUIRE(file != shipped().files().end());
    const std::string text = host_run(*file).text();
    const Outcome plain = train_shortly(text, {}, shipped());
    std::set<std::string> slots;
    const config::RunConfig config = test::valid(text);
    for (const config::SlotConfig* slot : config.slots()) slots.insert(address_of(*slot));
    std::string swapped = text;
    for (std::int64_t step = 1; step < plain.steps; ++step)
      for (const std::string& slot : slots) swapped += swap_at(step, slot, "0ba");
    INFO(host << ", " << slots.size() << " slots");
    check_same(train_shortly(swapped, {"data.workers=2"}, shipped()), plain,
               (plain.steps - 1) * static_cast<std::int64_t>(slots.size()));
  }
}
