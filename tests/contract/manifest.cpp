// Every shipped plugin: its manifest, and its options at their bounds and beyond.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <map>
#include <set>

#include "contract/host_run.hpp"
#include "core/check/values.hpp"
#include "core/plugins/check.hpp"
#include "core/plugins/kinds.hpp"
#include "core/plugins/loader.hpp"
#include "core/plugins/manifest_text.hpp"
#include "support/run.hpp"

namespace manifest_tests {

using namespace trainyard;
using namespace trainyard::contract;
using check::as_list, check::each_option, check::Trial, check::trials, check::Written;
using plugins::PluginFile;
using test::shipped;

namespace {

const plugins::LoadedPlugin& loaded(const PluginFile& file) {
  static std::map<std::string, plugins::LoadedPlugin> all;
  const auto known = all.find(file.path);
  return known != all.end() ? known->second : all.emplace(file.path, plugins::load(file)).first->second;
}

}  // namespace

TEST_CASE(
    "the registry holds every shared object of the plugin folder, and at least one of each kind that has "
    "any") {
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(TRAINYARD_PLUGIN_DIR))
    files += entry.path().extension() == ".so";
  for (const plugins::Refusal& refusal : shipped().refusals()) FAIL_CHECK(refusal.message);
  CHECK(shipped().files().size() == files);
  std::set<std::string> kinds;
  for (const PluginFile& file : shipped().files()) kinds.insert(file.manifest.kind);
  const std::set<std::string> of_tests = {"detector"};  // kinds that no plugin of ours has yet
  for (const plugins::KindRow& row : plugins::kinds)
    CHECK(kinds.contains(row.kind.name) != of_tests.contains(row.kind.name));
}

TEST_CASE("every manifest is valid, and what describe() gives live is what was sealed") {
  for (const PluginFile& file : shipped().files()) {
    INFO(title(file));
    for (const std::string& problem : plugins::problems(file.manifest)) FAIL_CHECK(problem);
    const PluginFile live{file.path, loaded(file).manifest(), file.build, file.digest};
    CHECK(plugins::to_text(live) == plugins::to_text(file));
    CHECK(shipped().find(file.manifest.kind, file.manifest.name).size() == 1);
    CHECK(std::filesystem::path(file.path).filename() == "lib" + file.manifest.name + ".so");
  }
}

TEST_CASE("every option is taken at each bound, refused just beyond, and refused in another type") {
  std::size_t plugins_seen = 0, accepted = 0, refused = 0;
  for (const PluginFile& file : with_table()) {
    ++plugins_seen;
    const HostRun& run = host_run(file);
    const auto try_out = [&](const OptionSpec& option, const std::string& assignment, bool allowed) {
      INFO(title(file) << ", " << assignment << (allowed ? " is allowed" : " is not allowed"));
      // "name = text" for the option of the plugin as it stands in the run file.
      const std::size_t equals = assignment.find(" = ");
      const std::string name = assignment.substr(0, equals);
      const config::Resolution resolution =
          test::resolve(run.text(), {set_path(file, name) + "=" + assignment.substr(equals + 3)}, shipped());
      // Issue 12, A15: a plugin of a list that is not there is named, not yet with the option that it stands
      // in.
      bool named = resolution.findings.text().find("\"no_such_plugin\"") != std::string::npos;
      for (const config::Finding& finding : resolution.findings.list())
        named = named || (finding.message.find(message_path(file, name)) != std::string::npos &&
                          // E2xx: right by itself, not together with other keys
                          !(allowed && finding.code.starts_with("E2")));
      if (!allowed) {
        ++refused;
        CHECK_FALSE(resolution.config.has_value());
        CHECK(named);
        CHECK(resolution.findings.text().find(option.name) != std::string::npos);
        return;
      }
      ++accepted;
      const bool path_of_file = option.type == OptionType::string && option.choices.empty();
      if (!path_of_file) CHECK_FALSE(named);
      if (!resolution.config) return;  // valid by itself, not together with the rest
      for (const config::SlotConfig& slot : resolution.config->slots)
        if (slot.kind == file.manifest.kind && slot.type == file.manifest.name)
          CHECK_NOTHROW(loaded(file).create(slot.options));
    };
    each_option(
        file.manifest.options, [&](const OptionSpec& other) { return candidates(other, *run.host).front(); },
        [&](const OptionSpec& option, const Written& written) {
          const std::vector<Trial> all = trials(option);
          for (const Trial& trial : all)
            try_out(option, written(option.list ? as_list(trial.text, option.count.value_or(1)) : trial.text),
                    trial.allowed);
          // One for a list, and a list for one.
          const auto good =
              std::find_if(all.begin(), all.end(), [](const Trial& trial) { return trial.allowed; });
          const std::string one = good != all.end() ? good->text : "\"x\"";
          try_out(option, written(option.list ? one : as_list(one)), false);
        });
    const config::Resolution unknown =
        test::resolve(run.text(), {set_path(file, "no_such_option") + "=1"}, shipped());
    CHECK_FALSE(unknown.config.has_value());
    CHECK(unknown.findings.text().find("no_such_option") != std::string::npos);
  }
  CHECK(plugins_seen == with_table().size());
  CHECK(accepted > 2 * plugins_seen);
  CHECK(refused > 3 * plugins_seen);
  WARN(plugins_seen << " plugins: " << accepted << " values accepted, " << refused << " refused");
}

}  // namespace manifest_tests
