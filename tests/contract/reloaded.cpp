// The state of every shipped plugin, as a short run leaves it, loaded into another of its kind.
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

#include <trainyard/state.hpp>

#include "contract/host_run.hpp"
#include "support/folder.hpp"
#include "support/run.hpp"

namespace reloaded_tests {

using namespace trainyard;
using namespace trainyard::contract;
using plugins::PluginFile;

namespace {

State saved(const Plugin& plugin) {
  State state;
  state.version = "1.0.0";
  StateWriter writer(state);
  plugin.save(writer);
  return state;
}

}  // namespace

TEST_CASE("state that was saved and loaded into a fresh plugin is saved as the same") {
  std::set<std::string> with_state;
  for (const PluginFile& file : drawn(alone())) {
    INFO(title(file));
    const std::string text = host_run(file).text();
    const test::Folder folder;  // for what writes files
    const std::vector<std::string> place = {"run.output_dir=" + folder.path()};
    test::BuiltRun used(test::valid(text, place)), fresh(test::valid(text, place));
    used->loop().fit();
    auto other = fresh->plugins().begin();
    for (train::ActivePlugin& plugin : used->plugins()) {
      INFO("in slot " << plugin.slot().slot);
      const State state = saved(plugin.as<Plugin>());
      if (!state.scalars.empty() || !state.tensors.empty()) {
        if (plugin.file().path == file.path) with_state.insert(file.path);
        other->as<Plugin>().load(StateReader(state));
        CHECK(digest(saved(other->as<Plugin>())) == digest(state));
      }
      ++other;
    }
  }
  CHECK(with_state.size() >= 5);  // the optimizers and the metrics at least
  WARN(with_state.size() << " plugins with state");
}

}  // namespace reloaded_tests
