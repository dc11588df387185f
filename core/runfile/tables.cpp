#include "core/runfile/tables.hpp"

#include <algorithm>

#include "core/runfile/at_path.hpp"
#include "core/runfile/option_files.hpp"
#include "core/runfile/option_text.hpp"
#include "core/runfile/suggest.hpp"
#include "lib/words.hpp"

namespace trainyard::config {
namespace {

const Table nothing;

std::string label(const Section& section, const Checked& checked) {
  const std::string& type = checked.filling.type;
  return header(section) + (type.empty() ? "" : " (type = \"" + type + "\")");
}

/// Returns the units of a kind's options: durations that the host converts to progress exclude wall time.
Units option_units(const std::string& kind) {
  return plugins::find_kind(kind)->in_steps ? Units::progress : Units::any;
}

template <class Spec>
const Spec* spec_of(const std::vector<Spec>& specs, const std::string& name) {
  const auto found = std::ranges::find(specs, name, &Spec::name);
  return found == specs.end() ? nullptr : &*found;
}

}  // namespace

const std::vector<OptionSpec>& Checked::specs() const {
  static const std::vector<OptionSpec> none;
  return filling.plugin == nullptr ? none : filling.plugin->manifest.options;
}

Table Checked::table() const {
  Table all;
  if (!filling.type.empty()) all.set("type", filling.written);
  if (!id.empty()) all.set("id", host.contains("id") ? *host.find("id") : Value(id));
  for (const Table* part : {&host, &options})
    for (const Table::Entry& entry : part->entries())
      if (!all.contains(entry.key)) all.set(entry.key, entry.value);
  return all;
}

Tables::Tables(const Document& document, const plugins::Registry& registry, Checker& checker,
               Findings& findings)
    : document_(document),
      registry_(registry),
      checker_(checker),
      findings_(findings),
      file_{std::make_shared<const std::string>(document.file), 0, 0} {}

const Value* Tables::given(const Section& section) {
  const Value* value = value_at(document_.root, section.path);
  if (value == nullptr || value->get_if<Table>()) return value;
  findings_.error("E105", value->key_origin.line > 0 ? value->key_origin : value->origin,
                  section.path + ": expected a table, found " + value->type_name(),
                  "write " + header(section) + " and its keys below");
  return nullptr;
}

void Tables::missing(const Section& section) {
  if (document_.root.contains(section.path)) return;  // it is no table, which was reported
  findings_.error(
      "E108", file_, "there is no " + header(section) + ": " + section.help,
      "add " + header(section) +
          (section.kind.empty() ? "" : " with type = one of: " + lib::join(registry_.names(section.kind))));
}

std::optional<Checked> Tables::plain(std::string_view path, bool always) {
  const Section& section = config::section(path);
  const Value* table = given(section);
  if (table == nullptr && !always) return std::nullopt;
  return keys(section, table, section.path, std::nullopt);
}

Checked Tables::slot(const Section& section, const Value* table, const std::string& path,
                     const std::string& default_type) {
  const Table& given = table == nullptr ? nothing : table->as<Table>();
  const Origin& at = table == nullptr ? file_ : table->origin;
  Checked checked =
      keys(section, table, path, find_plugin(section, given, at, default_type, registry_, findings_));
  complete_options(section, given, checked);
  anchor_files(checked.specs(), checked.options);
  files_exist(checked.specs(), checked.options, path, findings_);
  return checked;
}

Checked Tables::keys(const Section& section, const Value* table, const std::string& path,
                     std::optional<Filling> filling) {
  const Table& given = table == nullptr ? nothing : table->as<Table>();
  Checked checked;
  checked.at = table == nullptr ? file_ : table->origin;
  if (filling) checked.filling = *filling;
  const Value* type = filling ? given.find("type") : nullptr;
  for (const Table::Entry& entry : given.entries()) {
    const std::string here = path.empty() ? entry.key : path + "." + entry.key;
    if (const Key* key = spec_of(section.keys, entry.key)) {
      if (std::optional<Value> value = checker_.value(*key, entry.value, here, key->units))
        checked.host.set(entry.key, std::move(*value));
      continue;
    }
    if (has_child(section, entry.key) || (!section.kind.empty() && entry.key == "type")) continue;
    // While the type is not known, options cannot be told from mistakes.
    if (filling && checked.filling.plugin == nullptr) continue;
    const OptionSpec* spec = spec_of(checked.specs(), entry.key);
    if (spec == nullptr) {
      if (type == nullptr || !left_behind(*type, entry, here)) unknown_key(section, entry, checked);
    } else if (std::optional<Value> value =
                   spec->plugins.empty() ? checker_.value(*spec, entry.value, here,
                                                          option_units(checked.filling.plugin->manifest.kind))
                                         : parts(*spec, entry.value, here)) {
      checked.options.set(entry.key, std::move(*value));
    }
  }
  checker_.complete(specs_of(section), checked.host, given, checked.at, label(section, checked));
  return checked;
}

/// Checks the plugins among the options of another (PluginList), each as in a slot of its own.
std::optional<Value> Tables::parts(const OptionSpec& spec, const Value& given, const std::string& path) {
  if (findings_.mentions(given.origin)) return std::nullopt;
  const Array alone{given};  // a table is a list of one
  const auto* array = given.get_if<Table>() != nullptr ? &alone : given.get_if<Array>();
  if (array == nullptr) {
    findings_.error("E105", given.origin,
                    path + ": expected a " + type_text(spec) + ", found " + given.type_name(),
                    "write " + path + " = [{ type = \"NAME\" }, ...]");
    return std::nullopt;
  }
  Value checked{Array{}};
  for (std::size_t i = 0; i < array->size(); ++i)
    if (std::optional<Value> each =
            part(spec.plugins, (*array)[i], array == &alone ? path : path + "[" + std::to_string(i) + "]"))
      checked.as<Array>().push_back(std::move(*each));
  if (checked.as<Array>().size() != array->size()) return std::nullopt;
  checked.origin = given.origin;
  checked.key_origin = given.key_origin;
  return checked;
}

std::optional<Value> Tables::part(const std::string& kind, const Value& given, const std::string& path) {
  const auto* table = given.get_if<Table>();
  if (table == nullptr) {
    findings_.error("E105", given.origin, path + ": expected a table, found " + given.type_name(),
                    "write { type = \"NAME\" }, NAME one of: " + lib::join(registry_.names(kind)));
    return std::nullopt;
  }
  const Section section{.path = path, .help = "", .kind = kind, .default_types = {}, .keys = {}};
  const Checked checked = slot(section, &given, path);
  if (checked.filling.plugin == nullptr) return std::nullopt;
  use(section, path, checked);
  if (!checked.filling.plugin->manifest.hooks.empty()) {
    findings_.error("E307", table->find("type")->origin,
                    path + ": the " + kind + " \"" + checked.filling.type +
                        "\" has hooks, which are called in a slot only, not within another plugin",
                    "take one without, or give it the slot");
    return std::nullopt;
  }
  Value value(checked.table());
  value.origin = given.origin;
  return value;
}

void Tables::complete_options(const Section& section, const Table& given, Checked& checked) {
  checker_.complete(checked.specs(), checked.options, given, checked.at, label(section, checked));
}

/// Ignores, with a warning, an option that an earlier layer gave to a plugin that a later layer replaced.
bool Tables::left_behind(const Value& type, const Table::Entry& entry, const std::string& path) {
  if (layer_of(entry.value.origin) >= layer_of(type.origin)) return false;
  findings_.warning("E113", entry.value.key_origin,
                    path + " is left out: " + *type.origin.file + " made the type \"" +
                        type.as<std::string>() + "\", which has no such option");
  return true;
}

std::size_t Tables::layer_of(const Origin& origin) const {
  if (origin.file == nullptr) return 0;
  const auto at = std::find(document_.layers.rbegin(), document_.layers.rend(), *origin.file);
  return static_cast<std::size_t>(document_.layers.rend() - at);
}

void Tables::unknown_key(const Section& section, const Table::Entry& entry, const Checked& checked) {
  std::vector<std::string> known;
  std::string synonym;
  const auto add = [&](const OptionSpec& key) {
    known.push_back(key.name);
    if (std::ranges::find(key.synonyms, entry.key) != key.synonyms.end()) synonym = key.name;
  };
  std::ranges::for_each(section.keys, add);
  std::ranges::for_each(checked.specs(), add);
  for (const Section* child : children(section.path)) known.push_back(name_of(*child));
  if (!section.kind.empty()) known.push_back("type");
  std::sort(known.begin(), known.end());
  const std::string hint = synonym.empty() ? suggestion(entry.key, known)
                                           : "it is called `" + synonym + "`   allowed: " + lib::join(known);
  findings_.error("E104", entry.value.key_origin,
                  "unknown key `" + entry.key + "` in " + label(section, checked), hint);
}

void Tables::unknown_tables() {
  const Section& file = section("");
  for (const Table::Entry& entry : document_.root.entries())
    if (entry.key != "schema" && !has_child(file, entry.key)) unknown_key(file, entry, Checked{});
}

SlotConfig Tables::use(const Section& section, const std::string& name, const Checked& checked) {
  const Filling& filling = checked.filling;
  if (filling.plugin != nullptr) in_use_.push_back({name, checked.at, filling.plugin, checked.options});
  return {.slot = name,
          .kind = section.kind,
          .type = filling.type,
          .id = checked.id.empty() ? filling.type : checked.id,
          .options = checked.options,
          .origin = checked.at};
}

}  // namespace trainyard::config
