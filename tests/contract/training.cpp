// Every shipped plugin in its slot of a short run through the real loop.
#include <catch2/catch.hpp>
#include <map>
#include <regex>
#include <set>

#include <trainyard/state.hpp>

#include "contract/host_run.hpp"
#include "contract/process.hpp"
#include "support/run.hpp"

namespace training_tests {

using namespace trainyard;
using namespace trainyard::contract;
using plugins::PluginFile;
using test::shipped;

namespace {

/// Whether a plugin only looks on: it writes nothing but metrics, requests and its own state; during an
/// evaluation it may stand in for the weights.
bool looks_on(const PluginFile& file) {
  constexpr Regions harmless = Region::metrics | Region::control | Region::plugin_own;
  for (const HookSpec& hook : file.manifest.hooks) {
    const bool evaluation = hook.event == Event::eval_start || hook.event == Event::eval_end;
    if (!(evaluation ? harmless | Region::model : harmless).contains(hook.writes)) return false;
  }
  return true;
}

/// Tables that add every sink and every hook that looks on, the hooks in an order (more than one may stand in
/// for the weights). A plugin that is there already is left out, and a hook is watched by sinks only.
/// But for those in `refused`.
std::string observers(const PluginFile& except, const std::set<std::string>& refused) {
  std::string sinks, hooks, before;
  for (const PluginFile& file : alone()) {
    const std::string& name = file.manifest.name;
    if (file.path == except.path || !looks_on(file)) continue;
    const std::string lines = "type = \"" + name + "\"\n" + host_run(file).options;
    if (file.manifest.kind == "sink") sinks += "[[logging.sinks]]\n" + lines;
    if (file.manifest.kind != "hook" || except.manifest.kind == "hook" || refused.contains(name)) continue;
    hooks += "[[hooks]]\n" + lines + "after = [" + before + "]\n";
    before += (before.empty() ? "\"" : ", \"") + name + "\"";
  }
  return sinks + hooks;
}

/// Trains `text`, in a process of its own, with all observers that take the run: those that refuse it are left out, and counted.
Outcome train_watched(const PluginFile& file, std::string text, std::map<std::string, int>& refusals) {
  if (const std::size_t none = text.find("sinks = []\n"); none != std::string::npos) text.erase(none, 11);
  std::set<std::string> refused;
  const auto leave_out = [&](const std::string& said, const std::regex& refusal) {
    std::smatch found;
    if (!std::regex_search(said, found, refusal) || !refused.insert(found[1]).second) return false;
    ++refusals[found[1]];
    return true;
  };
  static const std::regex at_validation("hooks\\[\\d+\\]: the hook \"(\\w+)\""),
      later("^\\[hooks\\[\\d+\\]\\] (\\w+) at ");
  for (;;) {
    const std::string watched = text + observers(file, refused);
    const config::Resolution resolution = test::resolve(watched);
    if (!resolution.config && leave_out(resolution.findings.text(), at_validation)) continue;
    Outcome outcome = train_apart(watched);
    constexpr int bad_configuration = 2;
    if (outcome.exit_code != bad_configuration || !leave_out(outcome.error, later)) return outcome;
  }
}

}  // namespace

TEST_CASE(
    "every plugin trains, and gives the same digest again, with any number of workers, watched or not") {
  std::set<std::string> trained;
  std::map<std::string, int> refusals;
  const std::vector<PluginFile> tried = drawn(alone());
  for (const PluginFile& file : tried) {
    INFO(title(file));
    const std::string text = host_run(file).text();
    INFO(text);
    const Outcome first = train_shortly(text, {}, shipped());
    REQUIRE_THAT(first.error, Catch::Equals(""));
    CHECK(first.exit_code == 0);
    CHECK(first.steps > 0);
    CHECK(first.model.size() == 64);
    CHECK(first.optimizer.size() == 64);
    CHECK(std::isfinite(first.loss));

    const std::pair<const char*, Outcome> others[] = {
        {"run again, in the same process", train_shortly(text, {}, shipped())},
        {"one worker", train_apart(text, {"data.workers=1"})},
        {"four workers", train_apart(text, {"data.workers=4"})},
        {"observers and sinks", train_watched(file, text, refusals)},
    };
    for (const auto& [how, other] : others) {
      INFO(how << ": " << other.error);
      CHECK(other.exit_code == 0);
      CHECK(other.model == first.model);
      CHECK(other.optimizer == first.optimizer);
      // Averaged weights are evaluated in place of the trained ones: that alone an observer may change.
      if (std::string(how) != "observers and sinks") CHECK(other.loss == first.loss);
    }
    trained.insert(file.path);
  }
  CHECK(trained.size() == tried.size());
  for (const auto& [hook, count] : refusals) {
    INFO(hook << " refused " << count << " runs");
    CHECK(count < static_cast<int>(trained.size()) / 2);
  }
}

TEST_CASE("a digest tells runs apart") {
  const std::string text = host_run(alone().front()).text();
  const Outcome first = train_shortly(text, {}, shipped());
  const Outcome other = train_shortly(text, {"run.seed=6"}, shipped());
  CHECK(first.model != other.model);
}

}  // namespace training_tests
