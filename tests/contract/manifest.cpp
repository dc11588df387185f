// Every shipped plugin: its manifest, and its options at their bounds and beyond.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "contract/host_run.hpp"
#include "core/plugins/check.hpp"
#include "core/plugins/kinds.hpp"
#include "core/plugins/loader.hpp"
#include "core/plugins/manifest_text.hpp"
#include "support/run.hpp"

using namespace trainyard;
using namespace trainyard::contract;
using plugins::PluginFile;
using test::shipped;

namespace {

const plugins::LoadedPlugin& loaded(const PluginFile& file) {
  static std::map<std::string, plugins::LoadedPlugin> all;
  const auto known = all.find(file.path);
  return known != all.end() ? known->second : all.emplace(file.path, plugins::load(file)).first->second;
}

/// A text for a value, and whether the option may hold it.
struct Trial {
  std::string text;
  bool allowed;
};

std::string number(double value) {
  return config::toml_text(Value(value));
}
std::string integer(double value) {
  return std::to_string(static_cast<std::int64_t>(value));
}

void bounds(const OptionSpec& option, std::vector<Trial>& trials) {
  const bool whole = option.type == OptionType::integer;
  const auto text = [&](double value) { return whole ? integer(value) : number(value); };
  const auto next = [&](double value, double direction) {
    return whole ? value + direction
                 : std::nextafter(value, direction * std::numeric_limits<double>::infinity());
  };
  const auto at = [&](double bound, bool open, double inwards) {
    trials.push_back({text(bound), !open});
    trials.push_back({text(next(bound, -inwards)), false});
    if (open) trials.push_back({text(next(bound, inwards)), true});
  };
  if (option.minimum) at(*option.minimum, option.open_minimum, 1);
  if (option.maximum) at(*option.maximum, option.open_maximum, -1);
  if (!option.minimum) trials.push_back({text(-1e6), !option.maximum || *option.maximum >= -1e6});
  if (!option.maximum) trials.push_back({text(1e6), true});
  if (whole) return;
  for (const char* infinite : {"nan", "inf", "-inf"}) trials.push_back({infinite, false});
}

/// Values that an element of no option, but of one type, may have.
std::vector<Trial> of_no_type(const OptionSpec& option) {
  std::vector<Trial> all = {{"[[1]]", false}};
  if (option.type != OptionType::number)
    for (const char* odd : {"nan", "-inf", "1.5"}) all.push_back({odd, false});
  if (option.type != OptionType::table) all.push_back({"{ no_such_field = 1 }", false});
  return all;
}

/// Values of one element of an option: at its bounds, just beyond, and of other types.
std::vector<Trial> trials(const OptionSpec& option) {
  switch (option.type) {
    case OptionType::boolean: return {{"true", true}, {"false", true}, {"1", false}, {"\"true\"", false}};
    case OptionType::integer:
    case OptionType::number: {
      std::vector<Trial> all = {{"\"1\"", false}, {"true", false}};
      bounds(option, all);
      return all;
    }
    case OptionType::string: {
      std::vector<Trial> all = {{"5", false}, {"false", false}};
      for (const std::string& choice : option.choices) all.push_back({"\"" + choice + "\"", true});
      if (!option.choices.empty()) all.push_back({"\"no such value\"", false});
      return all;
    }
    case OptionType::duration: {
      std::vector<Trial> all = {{"\"1ep\"", true}, {"\"10ba\"", true}, {"5", false}};
      for (const char* wrong : {"", "ep", "5", "1 epoch", "-1ep", "nanep", "infba", "1e400ba", "1ep1ep"})
        all.push_back({std::string("\"") + wrong + "\"", false});
      return all;
    }
    case OptionType::table: {
      std::vector<Trial> all = {{"5", false}, {"\"x\"", false}, {"{ no_such_field = 1 }", false}};
      if (!option.plugins.empty()) all.push_back({"{ type = \"no_such_plugin\" }", false});
      return all;
    }
  }
  return {};
}

/// The assignment, in the plugin's table, that gives an option (or a field deep in one) a value: of a list,
/// all of it.
using Written = std::function<std::string(const std::string& value)>;

std::string as_list(const std::string& element) {
  return "[" + element + "]";
}

/// Visits every option, fields of tables included.
void each_option(const std::vector<OptionSpec>& options, const Surroundings& host, const Written& around,
                 const std::function<void(const OptionSpec&, const Written&)>& visit) {
  for (const OptionSpec& option : options) {
    const Written written = [&](const std::string& value) { return around(option.name + " = " + value); };
    visit(option, written);
    for (const OptionSpec& field : option.fields) {
      const Written inside = [&](const std::string& assignment) {
        std::string rest;
        for (const OptionSpec& other : option.fields)
          if (other.required && other.name != field.name)
            rest += ", " + other.name + " = " + candidates(other, host).front();
        const std::string table = "{ " + assignment + rest + " }";
        return written(option.list ? as_list(table) : table);
      };
      each_option({field}, host, inside, visit);
    }
  }
}

}  // namespace

TEST_CASE("the registry holds every shared object of the plugin folder, and at least one of each kind") {
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(TRAINYARD_PLUGIN_DIR))
    files += entry.path().extension() == ".so";
  for (const plugins::Refusal& refusal : shipped().refusals()) FAIL_CHECK(refusal.message);
  CHECK(shipped().files().size() == files);
  std::set<std::string> kinds;
  for (const PluginFile& file : shipped().files()) kinds.insert(file.manifest.kind);
  for (const plugins::KindRow& row : plugins::kinds) CHECK(kinds.count(row.kind.name) == 1);
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
  for (const PluginFile& file : shipped().files()) {
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
        file.manifest.options, *run.host, [](const std::string& text) { return text; },
        [&](const OptionSpec& option, const Written& written) {
          std::vector<Trial> all = trials(option);
          for (const Trial& trial : of_no_type(option)) all.push_back(trial);
          for (const Trial& trial : all)
            try_out(option, written(option.list ? as_list(trial.text) : trial.text), trial.allowed);
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
  CHECK(plugins_seen == shipped().files().size());
  CHECK(accepted > 2 * plugins_seen);
  CHECK(refused > 3 * plugins_seen);
  WARN(plugins_seen << " plugins: " << accepted << " values accepted, " << refused << " refused");
}
