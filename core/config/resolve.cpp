#include "core/config/resolve.hpp"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "core/config/check.hpp"
#include "core/config/rules.hpp"
#include "core/config/schema.hpp"
#include "core/config/suggest.hpp"
#include "core/config/swap.hpp"

namespace trainyard::config {
namespace {

using plugins::PluginFile;

const Table nothing;

std::string last_part(const std::string& path) {
  return path.substr(path.rfind('.') + 1);
}

std::string header(const Section& section) {
  if (section.path.empty()) return "the run file";
  return section.list ? "[[" + section.path + "]]" : "[" + section.path + "]";
}

/// A table of the file as it was checked: the host's keys, the plugin's options, and both as `config show`
/// prints them.
struct Checked {
  Value type_key;  ///< `type` as it was written
  std::string type, id;
  const PluginFile* plugin = nullptr;  ///< nothing where the slot's type is wrong or missing
  Table host, options;
  Origin at;

  Table table() const {
    Table all;
    if (!type.empty()) all.set("type", type_key);
    if (!id.empty()) all.set("id", host.contains("id") ? *host.find("id") : Value(id));
    for (const Table* part : {&host, &options})
      for (const Table::Entry& entry : part->entries())
        if (!all.contains(entry.key)) all.set(entry.key, entry.value);
    return all;
  }
};

class Resolver {
 public:
  Resolver(Document& document, const plugins::Registry& registry)
      : document_(document),
        registry_(registry),
        findings_(document.findings),
        checker_(findings_, run_has_steps(document.root)),
        file_{std::make_shared<const std::string>(document.file), 0, 0} {}

  std::optional<RunConfig> run() {
    if (!schema_version()) return std::nullopt;
    resolved_.set("schema", *document_.root.find("schema"));
    Table run = plain("run", true)->table();
    name_run(run);
    if (std::optional<Checked> threads = plain("run.threads", true)) run.set("threads", threads->table());
    resolved_.set("run", std::move(run));
    if (std::optional<Checked> own = plain("plugins")) resolved_.set("plugins", anchored(*own));
    model();
    config_.loss = slot("loss");
    data();
    config_.metrics = list("metrics");
    config_.optimizer = slot("optimizer");
    config_.schedule = slot("schedule");
    trainer();
    config_.checkpoint = slot("checkpoint");
    if (std::optional<Checked> early = plain("early_stopping"))
      resolved_.set("early_stopping", early->table());
    resolved_.set("guard", plain("guard", true)->table());
    resolved_.set("logging", plain("logging", true)->table());
    config_.sinks = list("logging.sinks");
    config_.hooks = list("hooks");
    unknown_tables();
    check_rules(resolved_, findings_);
    plugins_together();
    if (findings_.failed()) return std::nullopt;
    fill_in();
    swaps();
    if (findings_.failed()) return std::nullopt;
    config_.resolved = resolved_;
    return std::move(config_);
  }

 private:
  // ---- tables of the file ----

  static bool run_has_steps(const Table& root) {
    const auto* text = at_path<std::string>(root, "trainer.max_duration");
    const std::optional<Duration> length = text == nullptr ? std::nullopt : Duration::parse(*text);
    return !length || length->unit != Duration::Unit::seconds;
  }

  bool schema_version() {
    const Value* version = document_.root.find("schema");
    const auto* number = version == nullptr ? nullptr : version->get_if<std::int64_t>();
    if (number != nullptr && *number == 1) return true;
    // The keys of another version would all be reported as unknown, which helps nobody.
    if (version == nullptr)
      findings_.error("E103", file_, "the file does not say which version of the keys it uses",
                      "begin it with: schema = 1");
    else
      findings_.error("E103", version->origin, "this host reads schema = 1 only", "schema = 1");
    return false;
  }

  /// The table of a section if the file has it; a value that is no table is reported once and counts as none.
  const Value* given(const Section& section) {
    const Value* value = value_at(document_.root, section.path);
    if (value == nullptr || value->get_if<Table>()) return value;
    findings_.error("E105", value->key_origin.line > 0 ? value->key_origin : value->origin,
                    section.path + ": expected a table, found " + value->type_name(),
                    "write " + header(section) + " and its keys below");
    return nullptr;
  }

  /// Host's keys and plugin's options of one table. `plugin`: nothing while the slot's type is unknown, and
  /// then options cannot be told from mistakes.
  void sort_keys(const Section& section, const Table& table, const std::string& path, Checked& checked,
                 bool has_plugin) {
    for (const Table::Entry& entry : table.entries()) {
      const auto key = std::find_if(section.keys.begin(), section.keys.end(),
                                    [&](const Key& candidate) { return candidate.name == entry.key; });
      const std::string here = path.empty() ? entry.key : path + "." + entry.key;
      if (key != section.keys.end()) {
        if (std::optional<Value> value = checker_.value(*key, entry.value, here, key->units))
          checked.host.set(entry.key, std::move(*value));
        continue;
      }
      if (is_child(section, entry.key) || (!section.kind.empty() && entry.key == "type")) continue;
      if (!has_plugin) {
        unknown_key(section, entry, checked);
        continue;
      }
      if (checked.plugin == nullptr) continue;
      const auto& specs = checked.plugin->manifest.options;
      const auto spec = std::find_if(specs.begin(), specs.end(), [&](const OptionSpec& candidate) {
        return candidate.name == entry.key;
      });
      if (spec == specs.end()) {
        if (!left_behind(table, entry, here)) unknown_key(section, entry, checked);
      } else if (std::optional<Value> value =
                     !spec->plugins.empty() ? parts(*spec, entry.value, here)
                                            : checker_.value(*spec, entry.value, here,
                                                             option_units(checked.plugin->manifest.kind))) {
        checked.options.set(entry.key, std::move(*value));
      }
    }
  }

  /// What the host converts to a place in the run cannot be a wall time.
  static Units option_units(const std::string& kind) {
    return kind == "schedule" || kind == "sink" || kind == "checkpointer" ? Units::progress : Units::any;
  }

  static bool is_child(const Section& section, const std::string& key) {
    for (const Section* child : children(section.path))
      if (last_part(child->path) == key) return true;
    return false;
  }

  /// An option from before a later layer changed the slot's type: it belonged to the other plugin.
  bool left_behind(const Table& table, const Table::Entry& entry, const std::string& path) {
    const Value* type = table.find("type");
    if (type == nullptr || layer_of(entry.value.origin) >= layer_of(type->origin)) return false;
    findings_.warning("E113", entry.value.key_origin,
                      path + " is left out: " + *type->origin.file + " made the type \"" +
                          type->as<std::string>() + "\", which has no such option");
    return true;
  }

  std::size_t layer_of(const Origin& origin) const {
    if (origin.file == nullptr) return 0;
    const auto at = std::find(document_.layers.rbegin(), document_.layers.rend(), *origin.file);
    return static_cast<std::size_t>(document_.layers.rend() - at);
  }

  void unknown_key(const Section& section, const Table::Entry& entry, const Checked& checked) {
    std::vector<std::string> known;
    std::string synonym;
    for (const Key& key : section.keys) {
      known.push_back(key.name);
      if (std::find(key.synonyms.begin(), key.synonyms.end(), entry.key) != key.synonyms.end())
        synonym = key.name;
    }
    for (const Section* child : children(section.path)) known.push_back(last_part(child->path));
    if (!section.kind.empty()) known.push_back("type");
    if (checked.plugin != nullptr)
      for (const OptionSpec& option : checked.plugin->manifest.options) known.push_back(option.name);
    std::sort(known.begin(), known.end());
    const std::string hint = synonym.empty() ? suggestion(entry.key, known)
                                             : "it is called `" + synonym + "`   allowed: " + join(known);
    findings_.error("E104", entry.value.key_origin,
                    "unknown key `" + entry.key + "` in " + label(section, checked), hint);
  }

  static std::string label(const Section& section, const Checked& checked) {
    return header(section) + (checked.type.empty() ? "" : " (type = \"" + checked.type + "\")");
  }

  static std::vector<OptionSpec> specs_of(const Section& section) {
    return {section.keys.begin(), section.keys.end()};
  }

  /// A table of the host alone. `always`: with its defaults even where the file has none.
  std::optional<Checked> plain(std::string_view path, bool always = false) {
    const Section& section = config::section(path);
    const Value* value = given(section);
    if (value == nullptr && !always) return std::nullopt;
    Checked checked;
    checked.at = value == nullptr ? file_ : value->origin;
    const Table& table = value == nullptr ? nothing : value->as<Table>();
    sort_keys(section, table, section.path, checked, false);
    checker_.complete(specs_of(section), checked.host, table, checked.at, header(section));
    return checked;
  }

  // ---- slots ----

  /// The plugin that a slot's table names.
  void find_plugin(const Section& section, const Table& table, const std::string& default_type,
                   Checked& checked) {
    const Value* type = table.find("type");
    Origin at = checked.at;
    if (type != nullptr) {
      const auto* text = type->get_if<std::string>();
      if (text == nullptr) {
        findings_.error("E105", type->origin,
                        section.path + ".type: expected a string, found " + type->type_name(),
                        suggestion("", registry_.names(section.kind), section.kind + " plugins"));
        return;
      }
      if (findings_.mentions(type->origin) && text->find("${") != std::string::npos) return;
      checked.type = *text;
      checked.type_key = *type;
      at = type->origin;
    } else if (default_type.empty()) {
      findings_.error("E108", at, header(section) + " needs `type`, the name of a plugin",
                      suggestion("", registry_.names(section.kind), "one of"));
      return;
    } else {
      checked.type = default_type;
      checked.type_key = Value(default_type);
    }
    const std::vector<const PluginFile*> found = registry_.find(section.kind, checked.type);
    if (found.empty())
      findings_.error("E301", at, "no " + section.kind + " plugin is called \"" + checked.type + "\"",
                      suggestion(checked.type, registry_.names(section.kind), "there are"));
    else if (found.size() > 1)
      findings_.error("E302", at,
                      "more than one file provides the " + section.kind + " plugin \"" + checked.type +
                          "\": " + paths(found),
                      "take all but one out of the plugin folders");
    else if (!reserved_option(section, *found.front(), at))
      checked.plugin = found.front();
  }

  /// An option that the host's own key would hide from the plugin.
  bool reserved_option(const Section& section, const PluginFile& plugin, const Origin& at) {
    std::vector<const Section*> tables = {&section};
    if (section.path == "data")
      for (const Section* split : children("data"))
        if (split->kind.empty()) tables.push_back(split);
    for (const OptionSpec& option : plugin.manifest.options)
      for (const Section* table : tables) {
        const bool key = std::any_of(table->keys.begin(), table->keys.end(),
                                     [&](const Key& own) { return own.name == option.name; });
        if (!key && option.name != "type" && !is_child(*table, option.name)) continue;
        findings_.error(
            "E306", at,
            plugin.path + ": its option `" + option.name + "` is a key of the host in " + header(*table),
            "the plugin's author has to give it another name");
        return true;
      }
    return false;
  }

  static std::string paths(const std::vector<const PluginFile*>& files) {
    std::vector<std::string> names;
    names.reserve(files.size());
    for (const PluginFile* file : files) names.push_back(file->path + " (" + file->manifest.version + ")");
    return join(names);
  }

  Checked check_slot(const Section& section, const Table& table, const Origin& at, const std::string& path,
                     const std::string& default_type) {
    Checked checked;
    checked.at = at;
    find_plugin(section, table, default_type, checked);
    sort_keys(section, table, path, checked, true);
    checker_.complete(specs_of(section), checked.host, table, at, label(section, checked));
    if (checked.plugin != nullptr)
      checker_.complete(checked.plugin->manifest.options, checked.options, table, at,
                        label(section, checked));
    anchor_files(checked);
    files_exist(checked, path);
    return checked;
  }

  /// The plugins among the options of another (PluginList), each checked as in a slot of its own.
  std::optional<Value> parts(const OptionSpec& spec, const Value& given, const std::string& path) {
    if (findings_.mentions(given.origin)) return std::nullopt;
    const auto* array = given.get_if<Array>();
    if (array == nullptr) {
      findings_.error("E105", given.origin,
                      path + ": expected a " + type_text(spec) + ", found " + given.type_name(),
                      "write " + path + " = [{ type = \"NAME\" }, ...]");
      return std::nullopt;
    }
    Value checked{Array{}};
    for (std::size_t i = 0; i < array->size(); ++i)
      if (std::optional<Value> each = part(spec.plugins, (*array)[i], path + "[" + std::to_string(i) + "]"))
        checked.as<Array>().push_back(std::move(*each));
    if (checked.as<Array>().size() != array->size()) return std::nullopt;
    checked.origin = given.origin;
    checked.key_origin = given.key_origin;
    return checked;
  }

  std::optional<Value> part(const std::string& kind, const Value& given, const std::string& path) {
    const auto* table = given.get_if<Table>();
    if (table == nullptr) {
      findings_.error("E105", given.origin, path + ": expected a table, found " + given.type_name(),
                      "write { type = \"NAME\" }, NAME one of: " + join(registry_.names(kind)));
      return std::nullopt;
    }
    const Section section{.path = path, .help = "", .kind = kind, .default_types = {}, .keys = {}};
    const Checked checked = check_slot(section, *table, given.origin, path, "");
    if (checked.plugin == nullptr) return std::nullopt;
    use(section, path, checked);
    if (!checked.plugin->manifest.hooks.empty()) {
      findings_.error("E307", table->find("type")->origin,
                      path + ": the " + kind + " \"" + checked.type +
                          "\" has hooks, which are called in a slot only, not within another plugin",
                      "take one without, or give it the slot");
      return std::nullopt;
    }
    Value value(checked.table());
    value.origin = given.origin;
    return value;
  }

  SlotConfig use(const Section& section, const std::string& name, const Checked& checked) {
    if (checked.plugin != nullptr) used_.push_back({name, checked.at, checked.plugin});
    return {.slot = name,
            .kind = section.kind,
            .type = checked.type,
            .id = checked.id.empty() ? checked.type : checked.id,
            .options = checked.options,
            .origin = checked.at};
  }

  /// The plugin of a section that is not a list, put into the resolved file under `into`.
  SlotConfig slot(std::string_view path) {
    const Section& section = config::section(path);
    const Value* value = given(section);
    if (value == nullptr && section.default_types.empty()) {
      missing(section);
      return {};
    }
    const std::string fallback = section.default_types.empty() ? "" : section.default_types.front();
    const Checked checked = check_slot(section, value == nullptr ? nothing : value->as<Table>(),
                                       value == nullptr ? file_ : value->origin, section.path, fallback);
    resolved_.set(section.path, checked.table());
    return use(section, section.path, checked);
  }

  void missing(const Section& section) {
    if (document_.root.contains(section.path)) return;  // no table, which was reported
    findings_.error(
        "E108", file_, "there is no " + header(section) + ": " + section.help,
        "add " + header(section) +
            (section.kind.empty() ? "" : " with type = one of: " + join(registry_.names(section.kind))));
  }

  /// What the run file says of when and where a hook runs.
  void hook_keys(const Checked& checked, SlotConfig& slot) {
    if (const auto* every = at_path<std::string>(checked.host, "every")) {
      slot.every = *every;
      const auto has_cadence = [](const HookSpec& hook) { return !hook.cadence.every.empty(); };
      if (checked.plugin != nullptr && std::none_of(checked.plugin->manifest.hooks.begin(),
                                                    checked.plugin->manifest.hooks.end(), has_cadence))
        findings_.error("E114", checked.host.find("every")->origin,
                        slot.type + " has no hook with a cadence: `every` changes nothing", "drop the key");
    }
    if (const auto* priority = at_path<std::int64_t>(checked.host, "priority"))
      slot.priority = static_cast<int>(*priority);
    for (const auto& [key, names] : {std::pair{"before", &slot.before}, std::pair{"after", &slot.after}})
      if (const auto* given = at_path<Array>(checked.host, key))
        for (const Value& name : *given) names->push_back(name.as<std::string>());
    const auto* on_error = at_path<std::string>(checked.host, "on_error");
    slot.disable_on_error = on_error != nullptr && *on_error == "disable";
  }

  std::vector<SlotConfig> list(std::string_view path) {
    const Section& section = config::section(path);
    Array entries;
    if (const Value* value = value_at(document_.root, path)) {
      if (!value->get_if<Array>()) {
        findings_.error("E105", value->origin,
                        section.path + ": expected a list of tables, found " + value->type_name(),
                        "write " + header(section) + ", with two pairs of brackets");
        return {};
      }
      entries = value->as<Array>();
    } else {
      for (const std::string& type : section.default_types) {
        Table table;
        table.set("type", Value(type));
        entries.push_back(Value(std::move(table)));
        entries.back().origin = file_;
      }
    }
    std::vector<SlotConfig> slots;
    std::set<std::string> ids;
    if (path == "metrics") ids.insert("loss");  // "val/loss" is the loss itself
    Array printed;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      const std::string name = section.path + "[" + std::to_string(i) + "]";
      const auto* table = entries[i].get_if<Table>();
      if (table == nullptr) {
        findings_.error("E105", entries[i].origin,
                        name + ": expected a table, found " + entries[i].type_name(),
                        "write " + header(section) + " and its keys below");
        continue;
      }
      Checked checked = check_slot(section, *table, entries[i].origin, name, "");
      const auto* id = at_path<std::string>(checked.host, "id");
      checked.id = id != nullptr ? *id : checked.type;
      if (!checked.id.empty() && !ids.insert(checked.id).second)
        findings_.error("E112", id != nullptr ? checked.host.find("id")->origin : checked.at,
                        name + ": the id \"" + checked.id + "\" is taken",
                        "give it another: id = \"" + checked.id + "2\"");
      slots.push_back(use(section, name, checked));
      if (section.kind == "hook") hook_keys(checked, slots.back());
      printed.push_back(Value(checked.table()));
    }
    Table* parent = &resolved_;
    if (const std::size_t dot = path.find('.'); dot != std::string_view::npos)
      parent = &resolved_.find(path.substr(0, dot))->as<Table>();
    parent->set(last_part(section.path), Value(std::move(printed)));
    return slots;
  }

  void model() {
    config_.model = slot("model");
    const Section& section = config::section("model.dropout");
    const Value* value = given(section);
    if (value == nullptr) return;
    const Checked checked = check_slot(section, value->as<Table>(), value->origin, section.path, "");
    if (Value* model = resolved_.find("model")) model->as<Table>().set("dropout", Value(checked.table()));
    config_.dropout = use(section, section.path, checked);
  }

  // ---- data ----

  void data() {
    const Section& section = config::section("data");
    const Value* value = given(section);
    if (value == nullptr) return missing(section);
    const Table& table = value->as<Table>();
    Checked shared;
    shared.at = value->origin;
    find_plugin(section, table, "", shared);
    sort_keys(section, table, section.path, shared, true);
    checker_.complete(specs_of(section), shared.host, table, shared.at, label(section, shared));
    anchor_files(shared);
    if (shared.plugin != nullptr)
      for (const OptionSpec& option : shared.plugin->manifest.options)
        if (option.fallback && !table.contains(option.name))
          shared.options.set(option.name, *option.fallback);

    Table printed = shared.table();
    if (std::optional<SplitConfig> train = split("train", shared, table, printed)) config_.train = *train;
    config_.val = split("val", shared, table, printed);
    config_.test = split("test", shared, table, printed);
    sampler(printed);
    resolved_.set("data", std::move(printed));
  }

  std::optional<SplitConfig> split(const std::string& name, const Checked& shared, const Table& data,
                                   Table& printed) {
    const Section& section = config::section("data." + name);
    const Value* value = given(section);
    if (value == nullptr) {
      if (section.required && !data.contains(name)) missing(section);
      return std::nullopt;
    }
    const Table& table = value->as<Table>();
    Checked own;
    own.at = value->origin;
    own.type = shared.type;
    own.plugin = shared.plugin;
    sort_keys(section, table, section.path, own, true);
    checker_.complete(specs_of(section), own.host, table, own.at, label(section, own));
    anchor_files(own);
    solve(name, table, own, printed);

    Checked merged = own;
    for (const Table::Entry& entry : shared.options.entries())
      if (!table.contains(entry.key)) merged.options.set(entry.key, entry.value);
    if (shared.plugin != nullptr) {
      Table both = data;  // what either table gives, right or wrong, is not missing
      for (const Table::Entry& entry : table.entries()) both.set(entry.key, entry.value);
      checker_.complete(shared.plugin->manifest.options, merged.options, both, own.at, label(section, own));
    }
    files_exist(merged, section.path);

    own.type.clear();  // stands in [data]
    printed.set(name, own.table());
    SplitConfig result;
    result.dataset = use(config::section("data"), section.path, merged);
    return result;
  }

  void solve(const std::string& name, const Table& table, Checked& own, const Table& printed) {
    for (const Key& key : config::section("data." + name).keys)
      if (table.contains(key.name) && !own.host.contains(key.name)) return;  // reported
    if (name == "train")
      solve_batch(own.host, own.at, findings_);
    else if (const auto* micro = at_path<std::int64_t>(printed, "train.micro_batch_size");
             micro != nullptr && !own.host.contains("batch_size"))
      own.host.set("batch_size", Value(*micro));
  }

  void sampler(Table& printed) {
    const Section& section = config::section("data.sampler");
    const Value* value = given(section);
    const auto* shuffle = at_path<bool>(printed, "train.shuffle");
    const std::string fallback = shuffle != nullptr && *shuffle ? "random" : "sequential";
    const Checked checked =
        check_slot(section, value == nullptr ? nothing : value->as<Table>(),
                   value == nullptr ? file_ : value->origin, section.path, value == nullptr ? fallback : "");
    printed.set("sampler", Value(checked.table()));
    config_.sampler = use(section, section.path, checked);
  }

  // ---- paths ----

  /// Calls f for each path that the options of a plugin name.
  template <class F>
  static void each_file(Checked& checked, F f) {
    if (checked.plugin == nullptr) return;
    for (const OptionSpec& spec : checked.plugin->manifest.options) {
      Value* option = spec.file ? checked.options.find(spec.name) : nullptr;
      if (option == nullptr) continue;
      if (!spec.list) {
        f(*option, spec.name);
        continue;
      }
      for (Value& element : option->as<Array>()) f(element, spec.name);
    }
  }

  static void anchor_files(Checked& checked) {
    each_file(checked, [](Value& path, const std::string&) {
      auto& text = path.as<std::string>();
      text = absolute_path(text, path.origin);
    });
  }

  void files_exist(Checked& checked, const std::string& where) {
    each_file(checked, [&](const Value& path, const std::string& name) {
      const auto& text = path.as<std::string>();
      if (text.empty()) return;
      std::error_code error;
      if (!std::filesystem::exists(text, error)) {
        std::filesystem::path folder = std::filesystem::path(text).parent_path();
        const bool folder_there = std::filesystem::is_directory(folder, error);
        findings_.error("E401", path.origin, where + "." + name + ": " + text + " does not exist",
                        folder_there
                            ? near_file(folder, text)
                            : "nor does its folder; a path is relative to the file that it is written "
                              "in, ${run.data} is TRAINYARD_DATA or run.data");
      } else if (access(text.c_str(), R_OK) != 0) {
        findings_.error("E401", path.origin, where + "." + name + ": no right to read " + text);
      }
    });
  }

  static std::string near_file(const std::filesystem::path& folder, const std::string& path) {
    constexpr std::size_t most = 1000;
    std::vector<std::string> names;
    std::error_code error;
    for (auto entry = std::filesystem::directory_iterator(folder, error);
         !error && entry != std::filesystem::directory_iterator() && names.size() < most;
         entry.increment(error))
      names.push_back(entry->path().filename().string());
    std::sort(names.begin(), names.end());
    const std::string near = nearest(std::filesystem::path(path).filename().string(), names);
    return near.empty() ? "its folder is there, but holds nothing of a like name"
                        : "did you mean `" + near + "`?";
  }

  static Table anchored(Checked& plugins) {
    if (Value* paths = plugins.host.find("paths"))
      for (Value& path : paths->as<Array>()) path = Value(absolute_path(path.as<std::string>(), path.origin));
    return plugins.table();
  }

  // ---- the rest ----

  void name_run(Table& run) {
    if (!run.contains("name")) run.set("name", Value(document_.default_name));
    const auto* name = at_path<std::string>(run, "name");
    if (name != nullptr && (name->empty() || name->find_first_of("/\\\n") != std::string::npos))
      findings_.error("E107", run.find("name")->origin,
                      "run.name: \"" + *name + "\" does not do as the name of a folder",
                      "leave out slashes; folders go into run.output_dir");
    // The default is written in terms of the name.
    Value* output = run.find("output_dir");
    if (output != nullptr && output->origin.line == 0 && name != nullptr) *output = Value("runs/" + *name);
    Value* device = run.find("device");
    if (device != nullptr && device->as<std::string>() == "cuda") device->as<std::string>() = "cuda:0";
  }

  void trainer() {
    const Section& section = config::section("trainer");
    if (given(section) == nullptr && !document_.root.contains("trainer")) return missing(section);
    Table trainer = plain("trainer", true)->table();
    if (std::optional<Checked> clip = plain("trainer.grad_clip"))
      trainer.set("grad_clip", Value(clip->table()));
    resolved_.set("trainer", std::move(trainer));
  }

  void unknown_tables() {
    for (const Table::Entry& entry : document_.root.entries()) {
      const Section& file = config::section("");
      const bool key = entry.key == "schema";
      if (!key && !is_child(file, entry.key)) unknown_key(file, entry, Checked{});
    }
  }

  struct Used {
    std::string slot;
    Origin at;
    const PluginFile* plugin;
  };

  /// What plugins say of the run and of each other in their manifests.
  void plugins_together() {
    const auto* device = at_path<std::string>(resolved_, "run.device");
    for (const Used& used : used_) {
      const ManifestData& manifest = used.plugin->manifest;
      const std::string who = used.slot + ": the " + manifest.kind + " \"" + manifest.name + "\"";
      for (const std::string& need : manifest.needs) {
        if (need == "cuda" && device != nullptr && *device == "cpu")
          findings_.error("E303", used.at, who + " needs a GPU, and run.device is \"cpu\"",
                          "set run.device = \"cuda\", or take another plugin");
        if (need == "distributed")
          findings_.error("E303", used.at,
                          who + " needs a run of several processes, and this is one of a single",
                          "take another plugin");
        if (need == "steps" && !checker_.percent())
          findings_.error("E303", used.at,
                          who +
                              " needs a run whose length can be counted in steps, and trainer.max_duration "
                              "is a time",
                          "give max_duration in ep, ba, sp or tok and bound the time with "
                          "trainer.max_wall_time, or take the schedule \"constant\"");
        if (need == "graph" && !model_has_graph())
          findings_.error("E303", used.at,
                          who + " needs the graph of the model, and \"" + config_.model.type + "\" has none",
                          "take a model that is a graph, or drop this plugin");
      }
      for (const std::string& other : manifest.conflicts)
        for (const Used& rival : used_)
          if (rival.plugin->manifest.name == other && rival.plugin != used.plugin)
            findings_.error("E304", used.at,
                            who + " cannot be in a run with the " + rival.plugin->manifest.kind + " \"" +
                                other + "\" of " + rival.slot,
                            "drop one of the two");
    }
  }

  bool model_has_graph() const {
    const auto model = std::find_if(used_.begin(), used_.end(),
                                    [](const Used& used) { return used.plugin->manifest.kind == "model"; });
    if (model == used_.end()) return true;  // reported
    const std::vector<std::string>& features = model->plugin->manifest.provides;
    return std::find(features.begin(), features.end(), "graph") != features.end();
  }

  // ---- swaps ----

  /// Each entry is tried on the run as those before it leave it.
  void swaps() {
    const Value* entries = document_.root.find("swap");
    if (entries == nullptr) return;
    const Section& section = config::section("swap");
    if (entries->get_if<Array>() == nullptr) {
      findings_.error("E105", entries->origin,
                      std::string("swap: expected a list of tables, found ") + entries->type_name(),
                      "write [[swap]], with two pairs of brackets");
      return;
    }
    resolved_.erase("swap");
    Table now = resolved_;
    Array printed;
    for (std::size_t i = 0; i < entries->as<Array>().size(); ++i) {
      const Value& entry = entries->as<Array>()[i];
      const std::string name = "swap[" + std::to_string(i) + "]";
      const auto* table = entry.get_if<Table>();
      if (table == nullptr) {
        findings_.error("E105", entry.origin, name + ": expected a table, found " + entry.type_name());
        continue;
      }
      Checked checked;
      checked.at = entry.origin;
      PlannedSwap swap;
      for (const Table::Entry& each : table->entries()) {
        const auto key = std::find_if(section.keys.begin(), section.keys.end(),
                                      [&](const Key& candidate) { return candidate.name == each.key; });
        if (key == section.keys.end())
          swap.request.options.set(each.key, each.value);
        else if (std::optional<Value> value =
                     checker_.value(*key, each.value, name + "." + each.key, key->units))
          checked.host.set(each.key, std::move(*value));
      }
      checker_.complete(specs_of(section), checked.host, *table, checked.at, name);
      const auto* at = at_path<std::string>(checked.host, "at");
      const auto* slot = at_path<std::string>(checked.host, "slot");
      if (at == nullptr || slot == nullptr) continue;
      swap.at = *Duration::parse(*at);
      swap.request.slot = *slot;
      if (const auto* type = at_path<std::string>(checked.host, "type")) swap.request.type = *type;
      swap.request.carry = carry_of(checked.host.find("carry")->as<std::string>());
      swap.request.watch = checked.host.find("watch")->as<std::string>();
      Document changed = with_swap(now, swap.request, registry_, checked.at);
      Resolution resolution = resolve(std::move(changed), registry_);
      for (const Finding& finding : resolution.findings.list())
        findings_.error(finding.code, finding.at, name + ": " + finding.message, finding.hint);
      if (!resolution.config) continue;
      now = resolution.config->resolved;
      Table shown = checked.host;
      for (const Table::Entry& each : swap.request.options.entries()) shown.set(each.key, each.value);
      printed.push_back(Value(std::move(shown)));
      config_.swaps.push_back(std::move(swap));
    }
    resolved_.set("swap", Value(std::move(printed)));
  }

  // ---- the typed fields ----

  template <class T>
  T get(std::string_view path) const {
    return *at_path<T>(resolved_, path);
  }
  std::optional<Duration> get_duration(std::string_view path) const {
    const auto* text = at_path<std::string>(resolved_, path);
    return text == nullptr ? std::nullopt : Duration::parse(*text);
  }

  /// Everything is known to be there and right.
  void fill_in() {
    config_.name = get<std::string>("run.name");
    config_.seed = static_cast<std::uint64_t>(get<std::int64_t>("run.seed"));
    config_.device = get<std::string>("run.device");
    const auto& deterministic = get<std::string>("run.deterministic");
    config_.deterministic = deterministic == "strict" ? Deterministic::strict
                            : deterministic == "warn" ? Deterministic::warn
                                                      : Deterministic::off;
    config_.output_dir = get<std::string>("run.output_dir");
    config_.resume = get<std::string>("run.resume");
    config_.load_all = get<std::string>("run.load") == "all";
    if (const auto* patterns = at_path<Array>(resolved_, "run.load_match"))
      for (const Value& pattern : *patterns) config_.load_match.push_back(pattern.as<std::string>());
    config_.intra_op_threads = static_cast<int>(get<std::int64_t>("run.threads.intra_op"));
    config_.inter_op_threads = static_cast<int>(get<std::int64_t>("run.threads.inter_op"));

    config_.workers = static_cast<int>(get<std::int64_t>("data.workers"));
    config_.prefetch = static_cast<int>(get<std::int64_t>("data.prefetch"));
    config_.train.batch_size = get<std::int64_t>("data.train.batch_size");
    config_.train.micro_batch_size = get<std::int64_t>("data.train.micro_batch_size");
    config_.train.accumulation = get<std::int64_t>("data.train.accumulation");
    config_.train.shuffle = get<bool>("data.train.shuffle");
    config_.train.drop_last = get<bool>("data.train.drop_last");
    if (config_.val)
      config_.val->batch_size = config_.val->micro_batch_size = get<std::int64_t>("data.val.batch_size");
    if (config_.test)
      config_.test->batch_size = config_.test->micro_batch_size = get<std::int64_t>("data.test.batch_size");

    config_.max_duration = *get_duration("trainer.max_duration");
    if (const std::optional<Duration> wall = get_duration("trainer.max_wall_time"))
      config_.max_wall_seconds = wall->count;
    config_.eval_interval = get_duration("trainer.eval_interval");
    const auto& precision = get<std::string>("trainer.precision");
    config_.precision = precision == "bf16-mixed"   ? Precision::bf16_mixed
                        : precision == "fp16-mixed" ? Precision::fp16_mixed
                                                    : Precision::fp32;
    if (value_at(resolved_, "trainer.grad_clip") != nullptr)
      config_.grad_clip = {
          get<std::string>("trainer.grad_clip.type") == "norm" ? GradClip::Type::norm : GradClip::Type::value,
          get<double>("trainer.grad_clip.max")};
    const std::string nan = get<std::string>("guard.nan");
    config_.guard = {.deadline_seconds = get_duration("guard.deadline")->count,
                     .end_overdue = get<std::string>("guard.on_deadline") == "abort",
                     .nan = nan == "off"       ? GuardConfig::Nan::off
                            : nan == "disable" ? GuardConfig::Nan::disable
                            : nan == "abort"   ? GuardConfig::Nan::abort
                                               : GuardConfig::Nan::rollback,
                     .strict_state = get<bool>("guard.strict_state")};
    if (value_at(resolved_, "early_stopping") != nullptr)
      config_.early_stopping = {
          get<std::string>("early_stopping.metric"), get<std::string>("early_stopping.mode") == "max",
          get<std::int64_t>("early_stopping.patience"), get<double>("early_stopping.min_delta")};
    config_.log_interval = *get_duration("logging.interval");
  }

  Document& document_;
  const plugins::Registry& registry_;
  Findings& findings_;
  Checker checker_;
  Origin file_;  ///< of what the file lacks
  Table resolved_;
  RunConfig config_;
  std::vector<Used> used_;
};

}  // namespace

Resolution resolve(Document document, const plugins::Registry& registry) {
  Resolution result;
  if (document.readable) result.config = Resolver(document, registry).run();
  result.findings = std::move(document.findings);
  return result;
}

}  // namespace trainyard::config
