// trainyard plugins list, inspect, events: shows what a run can use. Its other verbs have their own files.
#include <iostream>

#include "core/cli/verbs/verb.hpp"

namespace trainyard::cli {
namespace {

struct PluginsArguments {
  RunFileOptions run_file;
  Format format = Format::text;
  std::string plugin;
  std::string kind;

  plugins::Registry registry() const {
    return plugins::Registry::scan(plugin_folders(run_file.plugin_folders));
  }
};

int list_all(PluginsArguments& given) {
  return static_cast<int>(plugins_list(given.registry(), given.kind, given.format, std::cout));
}

int inspect_one(PluginsArguments& given) {
  return static_cast<int>(
      plugins_inspect(given.registry(), given.plugin, given.format, std::cout, std::cerr));
}

int list_events(PluginsArguments& given) {
  plugins_events(given.format, std::cout);
  return 0;
}

}  // namespace

void add_plugins(Arguments command, CommandLine& line) {
  Arguments verb = command.verb("plugins", "list, inspect, write and check plugins");
  const auto given = std::make_shared<PluginsArguments>();
  Arguments listed = verb.verb("list", "all plugins, by kind");
  listed.add("kind", given->kind, "those of one kind: schedule").one_of(kinds_of_plugins());
  Arguments inspected = verb.verb("inspect", "a plugin's options, events and build");
  inspected.add("plugin", given->plugin, "name, kind/name, or file").required().offers("plugin");
  Arguments fired = verb.verb("events", "the events of the loop: what a hook may write and ask there");
  for (const Arguments& each : {listed, inspected, fired}) add_format(each, given->format);
  for (const Arguments& each : {listed, inspected}) add_plugin_folders(each, given->run_file);
  when_chosen(listed, line, given, list_all);
  when_chosen(inspected, line, given, inspect_one);
  add_plugins_check(verb, line);
  add_plugins_new(verb, line);
  add_plugins_dev(verb, line);
  when_chosen(fired, line, given, list_events);
}

}  // namespace trainyard::cli
