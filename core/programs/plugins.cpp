#include "core/programs/plugins.hpp"

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/cli/columns.hpp"
#include "core/plugins/elf.hpp"
#include "core/plugins/kinds.hpp"
#include "core/plugins/order.hpp"
#include "core/programs/programs.hpp"
#include "core/runfile/option_text.hpp"
#include "core/runfile/value_json.hpp"
#include "lib/words.hpp"

namespace trainyard::cli {
namespace {

using nlohmann::ordered_json;
using plugins::PluginFile;
using plugins::Refusal;
using plugins::Registry;

std::vector<std::string> regions_of(Regions regions) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < region_count; ++i)
    if (regions.contains(static_cast<Region>(i))) names.emplace_back(region_names[i]);
  return names;
}

/// Formats a cadence: "100ba from 1ep to 50%".
std::string cadence_text(const Cadence& cadence) {
  std::string text = cadence.every.empty() ? "time" : cadence.every;
  if (!cadence.start.empty()) text += " from " + cadence.start;
  if (!cadence.end.empty()) text += " to " + cadence.end;
  return text;
}

void print(const ordered_json& json, std::ostream& out) {
  // Text from files may not be UTF-8; bad bytes are replaced rather than reported as an error.
  out << json.dump(2, ' ', false, ordered_json::error_handler_t::replace) << '\n';
}

ordered_json summary_json(const PluginFile& file) {
  return {{"kind", file.manifest.kind},       {"revision", file.manifest.revision},
          {"name", file.manifest.name},       {"version", file.manifest.version},
          {"summary", file.manifest.summary}, {"path", file.path}};
}

ordered_json options_json(const std::vector<OptionSpec>& options) {
  auto array = ordered_json::array();
  for (const OptionSpec& option : options) {
    ordered_json json = {
        {"name", option.name},     {"type", option_type_names[static_cast<std::size_t>(option.type)]},
        {"list", option.list},     {"required", option.required},
        {"common", option.common}, {"file", option.file},
        {"help", option.help}};
    if (option.fallback) json["default"] = config::json_of(*option.fallback);
    if (option.minimum) json[option.open_minimum ? "above" : "min"] = *option.minimum;
    if (option.maximum) json[option.open_maximum ? "below" : "max"] = *option.maximum;
    if (!option.choices.empty()) json["choices"] = option.choices;
    if (!option.plugins.empty()) json["plugins"] = option.plugins;
    if (!option.fields.empty()) json["fields"] = options_json(option.fields);
    array.push_back(std::move(json));
  }
  return array;
}

std::vector<std::string> names(const std::vector<Event>& events) {
  std::vector<std::string> names;
  for (const Event event : events) names.emplace_back(name(event));
  return names;
}

ordered_json full_json(const PluginFile& file) {
  ordered_json json = summary_json(file);
  json["needs"] = file.manifest.needs;
  json["provides"] = file.manifest.provides;
  json["conflicts"] = file.manifest.conflicts;
  json["fires"] = names(file.manifest.fires);
  json["options"] = options_json(file.manifest.options);
  json["hooks"] = ordered_json::array();
  for (const HookSpec& hook : file.manifest.hooks)
    json["hooks"].push_back({{"event", name(hook.event)},
                             {"phase", name(hook.phase)},
                             {"writes", regions_of(hook.writes)},
                             {"priority", hook.priority},
                             {"before", hook.before},
                             {"after", hook.after},
                             {"every", hook.cadence.every},
                             {"start", hook.cadence.start},
                             {"end", hook.cadence.end}});
  json["build"] = file.build;
  json["digest"] = file.digest;
  json["initialisers"] = plugins::ElfFile(file.path).initialisers();
  return json;
}

void add_option_rows(const std::vector<OptionSpec>& options, const std::string& prefix,
                     std::vector<std::vector<std::string>>& rows) {
  for (const OptionSpec& option : options) {
    rows.push_back({prefix + option.name, config::type_text(option), config::default_text(option),
                    config::allowed_text(option), option.help});
    add_option_rows(option.fields, prefix + option.name + ".", rows);
  }
}

void print_options(const PluginFile& file, bool common, const std::string& title, std::ostream& out) {
  std::vector<std::vector<std::string>> rows = {{"name", "type", "default", "allowed", ""}};
  std::vector<OptionSpec> options = file.manifest.options;
  std::erase_if(options, [&](const OptionSpec& option) { return option.common != common; });
  add_option_rows(options, "", rows);
  if (rows.size() == 1) return;
  out << '\n' << title << '\n';
  print_columns(rows, "  ", out);
}

void print_hooks(const PluginFile& file, std::ostream& out) {
  if (file.manifest.hooks.empty()) return;
  std::vector<std::vector<std::string>> rows = {{"event", "phase", "writes", "priority", "every", "order"}};
  for (const HookSpec& hook : file.manifest.hooks) {
    std::string order;
    if (!hook.before.empty()) order += "before " + lib::join(hook.before);
    if (!hook.after.empty()) order += (order.empty() ? "after " : "; after ") + lib::join(hook.after);
    rows.push_back({std::string(name(hook.event)), std::string(name(hook.phase)), events::text(hook.writes),
                    std::to_string(hook.priority), cadence_text(hook.cadence), order});
  }
  out << "\nhooks\n";
  print_columns(rows, "  ", out);
}

void print_everything(const PluginFile& file, std::ostream& out) {
  const ManifestData& manifest = file.manifest;
  out << manifest.kind << '/' << manifest.name << ' ' << manifest.version << '\n' << manifest.summary << '\n';
  print_options(file, false, "options", out);
  print_options(file, true, "options of every " + manifest.kind, out);
  print_hooks(file, out);
  out << '\n';
  std::vector<std::vector<std::string>> facts;
  if (!manifest.needs.empty()) facts.push_back({"needs", lib::join(manifest.needs)});
  if (!manifest.provides.empty()) facts.push_back({"provides", lib::join(manifest.provides)});
  if (!manifest.conflicts.empty()) facts.push_back({"conflicts with", lib::join(manifest.conflicts)});
  if (!manifest.fires.empty()) facts.push_back({"fires", lib::join(names(manifest.fires))});
  facts.push_back({"file", file.path});
  for (const auto& [key, value] : file.build) facts.push_back({key, value});
  facts.push_back({"code SHA-256", file.digest});
  // One initialiser is the runtime's own. Others may be constants of headers, so this is a note and no error.
  if (const std::size_t count = plugins::ElfFile(file.path).initialisers(); count > 1)
    facts.push_back({"note", std::to_string(count - 1) + " static initialiser(s) run when it is loaded"});
  print_columns(facts, "", out);
}

/// Returns the files that `what` names; a file that is given by path is read and may throw PluginError.
std::vector<PluginFile> named(const Registry& registry, const std::string& what) {
  if (what.ends_with(".so")) return plugins::read(what);
  std::vector<PluginFile> found;
  for (const PluginFile& file : registry.files())
    if (what == file.manifest.name || what == file.manifest.kind + "/" + file.manifest.name)
      found.push_back(file);
  return found;
}

}  // namespace

std::vector<std::string> kinds_of_plugins() {
  std::vector<std::string> kinds;
  for (const plugins::KindRow& row : plugins::kinds) kinds.emplace_back(row.kind.name);
  return kinds;
}

ExitCode plugins_list(const Registry& registry, const std::string& kind, Format format, std::ostream& out) {
  std::vector<const PluginFile*> files;
  for (const PluginFile& file : registry.files())
    if (kind.empty() || file.manifest.kind == kind) files.push_back(&file);
  std::stable_sort(files.begin(), files.end(), [](const PluginFile* a, const PluginFile* b) {
    return std::pair(a->manifest.kind, a->manifest.name) < std::pair(b->manifest.kind, b->manifest.name);
  });
  const ExitCode code = registry.refusals().empty() ? ExitCode::done : ExitCode::plugin;
  if (format == Format::json) {
    ordered_json json = {{"plugins", ordered_json::array()}, {"refused", ordered_json::array()}};
    for (const PluginFile* file : files) json["plugins"].push_back(summary_json(*file));
    for (const Refusal& refusal : registry.refusals())
      json["refused"].push_back({{"path", refusal.path}, {"message", refusal.message}});
    print(json, out);
    return code;
  }
  std::vector<std::vector<std::string>> rows;
  rows.reserve(files.size());
  for (const PluginFile* file : files)
    rows.push_back(
        {file->manifest.kind, file->manifest.name, file->manifest.version, file->manifest.summary});
  print_columns(rows, "", out);
  if (files.empty()) out << "no plugins\n";
  if (!registry.refusals().empty()) out << "\nrefused\n";
  for (const Refusal& refusal : registry.refusals()) out << "  " << refusal.message << '\n';
  return code;
}

ExitCode plugins_inspect(const Registry& registry, const std::string& what, Format format, std::ostream& out,
                         std::ostream& errors) {
  try {
    const std::vector<PluginFile> found = named(registry, what);
    if (found.empty()) {
      errors << "no plugin is named \"" << what << "\": `trainyard plugins list` shows all of them\n";
      if (const Refusal* refusal = registry.refused(what.substr(what.find('/') + 1)))
        errors << "  " << refusal->message << '\n';
      return ExitCode::plugin;
    }
    if (format == Format::json) {
      auto json = ordered_json::array();
      for (const PluginFile& file : found) json.push_back(full_json(file));
      print(json, out);
      return ExitCode::done;
    }
    for (const PluginFile& file : found) {
      if (&file != &found.front()) out << '\n';
      print_everything(file, out);
    }
    return ExitCode::done;
  } catch (const PluginError& error) {
    errors << error.what() << '\n';
  }
  return ExitCode::plugin;
}

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

/// Prints what a hook may write at each event and ask of the loop there (event.hpp).
int list_events(PluginsArguments& given) {
  auto json = ordered_json::array();
  std::vector<std::vector<std::string>> rows = {{"event", "writes", "may ask for", ""}};
  for (std::size_t i = 0; i < event_count; ++i) {
    const auto event = static_cast<Event>(i);
    const std::string asks = controls_text(controls(event));
    const char* fired = needs_ranks(event) ? "of several ranks" : of_micro(event) ? "by the executor" : "";
    json.push_back({{"event", name(event)},
                    {"writes", regions_of(writable(event))},
                    {"asks", asks},
                    {"of_ranks", needs_ranks(event)},
                    {"of_executor", of_micro(event)}});
    rows.push_back({std::string(name(event)), events::text(writable(event)), asks, fired});
  }
  given.format == Format::json ? print(json, std::cout) : print_columns(rows, "", std::cout);
  return 0;
}

}  // namespace

void add_plugins(Arguments verb, CommandLine& line) {
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
