// trainyard plugins check: tests a plugin and reports what is wrong with it.
#include <iostream>

#include "core/check/report.hpp"
#include "core/cli/engine_library.hpp"
#include "core/programs/programs.hpp"

namespace trainyard::cli {
namespace {

struct PluginsCheckArguments {
  RunFileOptions run_file;
  std::vector<std::string> plugins;
  std::string format = "text";
  double seed = 1.0;
  bool list = false;
  check::CheckOptions options;
};

/// Adds the plugins that a word names: all of a file, or a known one by its name.
void add_named(const plugins::Registry& registry, const std::string& word,
               std::vector<plugins::PluginFile>& found) {
  const std::size_t before = found.size();
  if (word.ends_with(".so")) found.emplace_back().path = word;
  for (const plugins::PluginFile& file : registry.files())
    if (word == file.manifest.name || word == file.manifest.kind + "/" + file.manifest.name)
      found.push_back(file);
  if (found.size() > before) return;
  std::string refused;
  for (const plugins::Refusal& each : registry.refusals()) refused += "\n  refused: " + each.message;
  throw PluginError("no plugin is named \"" + word +
                    "\", and it is no file libNAME.so; `trainyard plugins list` shows all of them" + refused);
}

int check_plugins(PluginsCheckArguments& given) {
  if (given.list) {
    check::print_tests(std::cout);
    return static_cast<int>(ExitCode::done);
  }
  if (const std::string word = check::unknown_word(given.options.only); !word.empty())
    throw ConfigError("--only: there is no test and no group \"" + word + "\"; --list shows them");
  if (given.plugins.empty()) throw ConfigError("give the file of a plugin, libNAME.so, or its name");
  const auto registry = plugins::Registry::scan(plugin_folders(given.run_file.plugin_folders));
  std::vector<plugins::PluginFile> found;
  for (const std::string& word : given.plugins) add_named(registry, word, found);
  using Format = check::CheckOptions::Format;
  given.options.format = given.format == "json"    ? Format::json
                         : given.format == "junit" ? Format::junit
                                                   : Format::text;
  given.options.sets = given.run_file.sets;
  given.options.seed = static_cast<std::uint64_t>(given.seed);
  return checker().check(found, registry, given.options);
}

}  // namespace

void add_plugins_check(Arguments plugins, CommandLine& line) {
  constexpr double largest_seed = 1e15, longest = 86400.0;
  Arguments verb = plugins.verb("check", "tries a plugin: options, state, resume, threads, faults and more");
  const auto given = std::make_shared<PluginsCheckArguments>();
  verb.add("plugin", given->plugins, "files, or names of plugins that are known");
  verb.flag("--list", given->list, "the tests, and what holds where each passes");
  verb.add("--only", given->options.only, "tests or groups, such as resume or state.truncated")
      .one_at_a_time();
  verb.add("--format", given->format, "text, json or junit").one_of({"text", "json", "junit"});
  verb.add("--seed", given->seed, "of random options and states; 1 by default").within(0.0, largest_seed);
  verb.add("--timeout", given->options.timeout, "seconds that a test may take; 60 by default")
      .within(1.0, longest);
  add_set(verb, given->run_file, "data.path=rows.bin");
  add_plugin_folders(verb, given->run_file);
  when_chosen(verb, line, given, check_plugins);
}

}  // namespace trainyard::cli
