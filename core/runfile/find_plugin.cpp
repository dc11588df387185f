#include "core/runfile/find_plugin.hpp"

#include <algorithm>

#include "core/runfile/suggest.hpp"
#include "lib/words.hpp"

namespace trainyard::config {
namespace {

using plugins::PluginFile;

std::string paths(const std::vector<const PluginFile*>& files) {
  std::vector<std::string> names;
  names.reserve(files.size());
  for (const PluginFile* file : files) names.push_back(file->path + " (" + file->manifest.version + ")");
  return lib::join(names);
}

/// Returns the value of a key that looks like a misspelt `type`; null if there is none.
const Value* misspelt_type(const Section& section, const Table& table) {
  for (const Table::Entry& entry : table.entries())
    if (!nearest(entry.key, {"type"}).empty() && !has_child(section, entry.key) &&
        std::ranges::find(section.keys, entry.key, &Key::name) == section.keys.end())
      return &entry.value;
  return nullptr;
}

/// Lists files that were refused and why, as the missing plugin may be in one of them.
std::string refused_too(const plugins::Registry& registry) {
  constexpr std::size_t most = 5;
  const std::vector<plugins::Refusal>& all = registry.refusals();
  if (all.empty()) return {};
  std::string text = "\n" + std::to_string(all.size()) + (all.size() == 1 ? " file was" : " files were") +
                     " refused where it was looked for:";
  for (std::size_t i = 0; i < std::min(all.size(), most); ++i) text += "\n  " + all[i].message;
  if (all.size() > most)
    text += "\n  and " + std::to_string(all.size() - most) + " more: `trainyard plugins list` tells all";
  return text;
}

/// Reports an option that a key of the host would hide from the plugin.
bool reserved_option(const Section& section, const PluginFile& plugin, const Origin& at, Findings& findings) {
  for (const OptionSpec& option : plugin.manifest.options)
    if (const Section* table = reserved_in(section, option.name)) {
      findings.error(
          "E306", at,
          plugin.path + ": its option `" + option.name + "` is a key of the host in " + header(*table),
          "the plugin's author has to give it another name");
      return true;
    }
  return false;
}

}  // namespace

const Section* reserved_in(const Section& section, const std::string& option) {
  std::vector<const Section*> tables = {&section};
  if (section.path == "data")
    for (const Section* split : children("data"))
      if (split->kind.empty()) tables.push_back(split);
  for (const Section* table : tables)
    if (option == "type" || has_child(*table, option) ||
        std::ranges::find(table->keys, option, &Key::name) != table->keys.end())
      return table;
  return nullptr;
}

std::vector<std::string> reserved_options(const ManifestData& manifest) {
  std::vector<std::string> found;
  for (const Section& section : schema())
    for (const OptionSpec& option : manifest.options) {
      if (section.kind != manifest.kind || option.name == "type" || option.name == "id") continue;
      if (const Section* table = reserved_in(section, option.name))
        found.push_back("option `" + option.name + "`: is a key of the host in " + header(*table) +
                        " of a run file; give it another name");
    }
  return found;
}

Filling find_plugin(const Section& section, const Table& table, const Origin& at,
                    const std::string& default_type, const plugins::Registry& registry, Findings& findings) {
  const Value* written = table.find("type");
  if (written == nullptr && default_type.empty()) {
    const Value* misspelt = misspelt_type(section, table);
    findings.error("E108", misspelt == nullptr ? at : misspelt->key_origin,
                   header(section) + " needs `type`, the name of a plugin",
                   (misspelt == nullptr ? "" : "did you mean `type`?   ") +
                       suggestion("", registry.names(section.kind), "one of"));
    return {};
  }
  Filling filling;
  filling.written = written == nullptr ? Value(default_type) : *written;
  const auto* type = filling.written.get_if<std::string>();
  if (type == nullptr) {
    findings.error("E105", written->origin,
                   section.path + ".type: expected a string, found " + written->type_name(),
                   suggestion("", registry.names(section.kind), section.kind + " plugins"));
    return {};
  }
  // A ${} that could not be filled in is already reported.
  if (findings.mentions(filling.written.origin) && type->find("${") != std::string::npos) return {};
  filling.type = *type;

  const Origin& place = written == nullptr ? at : written->origin;
  const std::vector<const PluginFile*> found = registry.find(section.kind, filling.type);
  const plugins::Refusal* refused = registry.refused(filling.type);
  if (found.empty() && refused != nullptr)
    findings.error(
        "E301", place,
        "the " + section.kind + " plugin \"" + filling.type + "\" cannot be used: " + refused->message);
  else if (found.empty())
    findings.error(
        "E301", place, "no " + section.kind + " plugin is called \"" + filling.type + "\"",
        suggestion(filling.type, registry.names(section.kind), "there are") + refused_too(registry));
  else if (found.size() > 1)
    findings.error("E302", place,
                   "more than one file provides the " + section.kind + " plugin \"" + filling.type +
                       "\": " + paths(found),
                   "take all but one out of the plugin folders");
  else if (!reserved_option(section, *found.front(), place, findings))
    filling.plugin = found.front();
  if (refused != nullptr && filling.plugin != nullptr)
    findings.warning("E308", place,
                     "the " + section.kind + " plugin \"" + filling.type + "\" is that of " +
                         found.front()->path + "; a file of the same name was refused: " + refused->message);
  return filling;
}

}  // namespace trainyard::config
