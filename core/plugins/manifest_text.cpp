#include "core/plugins/manifest_text.hpp"

#include <algorithm>
#include <limits>
#include <span>

#include "core/plugins/fingerprint.hpp"
#include "core/plugins/kinds.hpp"
#include "core/plugins/plain_toml.hpp"
#include "lib/sha256.hpp"

namespace trainyard::plugins {
namespace {

constexpr std::string_view seal_line = "\nseal = {";

Array strings(const std::vector<std::string>& texts) {
  return Array(texts.begin(), texts.end());
}

void set_unless_empty(Table& table, const char* key, const std::string& text) {
  if (!text.empty()) table.set(key, text);
}
void set_unless_empty(Table& table, const char* key, Array array) {
  if (!array.empty()) table.set(key, std::move(array));
}
void set_if(Table& table, const char* key, bool flag) {
  if (flag) table.set(key, true);
}

Array option_array(const std::vector<OptionSpec>& specs) {
  Array array;
  for (const OptionSpec& spec : specs) {
    Table table;
    table.set("name", spec.name);
    table.set("type", std::string(option_type_names[static_cast<std::size_t>(spec.type)]));
    set_if(table, "list", spec.list);
    if (spec.count) table.set("count", *spec.count);
    set_if(table, "common", spec.common);
    set_if(table, "required", spec.required);
    set_if(table, "file", spec.file);
    set_if(table, "output", spec.output);
    set_if(table, "metric", spec.metric);
    if (spec.fallback) table.set("default", *spec.fallback);
    if (spec.minimum) table.set("min", *spec.minimum);
    if (spec.maximum) table.set("max", *spec.maximum);
    set_if(table, "open_min", spec.open_minimum);
    set_if(table, "open_max", spec.open_maximum);
    set_unless_empty(table, "choices", strings(spec.choices));
    set_unless_empty(table, "synonyms", strings(spec.synonyms));
    set_unless_empty(table, "fields", option_array(spec.fields));
    set_unless_empty(table, "plugins", spec.plugins);
    set_unless_empty(table, "help", spec.help);
    array.emplace_back(std::move(table));
  }
  return array;
}

Array hook_array(const std::vector<HookSpec>& hooks) {
  Array array;
  for (const HookSpec& hook : hooks) {
    Table table;
    table.set("event", std::string(name(hook.event)));
    table.set("phase", std::string(name(hook.phase)));
    Array writes;
    for (std::size_t i = 0; i < region_count; ++i)
      if (hook.writes.contains(static_cast<Region>(i))) writes.emplace_back(std::string(region_names[i]));
    set_unless_empty(table, "writes", std::move(writes));
    table.set("priority", hook.priority);
    set_unless_empty(table, "before", strings(hook.before));
    set_unless_empty(table, "after", strings(hook.after));
    set_unless_empty(table, "every", hook.cadence.every);
    set_unless_empty(table, "start", hook.cadence.start);
    set_unless_empty(table, "end", hook.cadence.end);
    array.emplace_back(std::move(table));
  }
  return array;
}

/// Takes the entries of a table one by one; entries that are left at the end are an error.
class Reader {
 public:
  Reader(const Table& table, std::string where) : table_(table), where_(std::move(where)) {}

  const Value* find(const char* key) {
    const Value* value = table_.find(key);
    if (value != nullptr) taken_.emplace_back(key);
    return value;
  }
  template <class T>
  T optional(const char* key, T fallback = {}) {
    const Value* value = find(key);
    return value != nullptr ? convert<T>(*value, key) : std::move(fallback);
  }
  template <class T>
  T required(const char* key) {
    const Value* value = find(key);
    if (value == nullptr) fail(std::string("`") + key + "` is missing");
    return convert<T>(*value, key);
  }
  std::optional<double> number(const char* key) {
    const Value* value = find(key);
    return value != nullptr ? std::optional(convert<double>(*value, key)) : std::nullopt;
  }
  std::vector<std::string> strings(const char* key) {
    std::vector<std::string> texts;
    for (const Value& element : optional<Array>(key)) texts.push_back(convert<std::string>(element, key));
    return texts;
  }
  /// Returns the index of the entry's text among `names`.
  template <class Enum>
  Enum one_of(const std::string& text, std::span<const std::string_view> names, const char* key) const {
    const auto found = std::find(names.begin(), names.end(), text);
    if (found == names.end())
      fail(std::string("`") + key + "` is \"" + text + "\", which this host does not know");
    return static_cast<Enum>(found - names.begin());
  }
  template <class T>
  const T& convert(const Value& value, const char* key) const {
    if (const T* held = value.get_if<T>()) return *held;
    fail(std::string("`") + key + "` is of type " + value.type_name() + ", expected " +
         Value(T{}).type_name());
  }
  void finish() const {
    for (const Table::Entry& entry : table_.entries())
      if (std::find(taken_.begin(), taken_.end(), entry.key) == taken_.end())
        fail("`" + entry.key + "` is not known to this host");
  }
  [[noreturn]] void fail(const std::string& what) const { throw PluginError(where_ + what); }

 private:
  const Table& table_;
  std::string where_;
  std::vector<std::string_view> taken_;
};

std::vector<OptionSpec> options_from(const Array& array, const std::string& where) {
  std::vector<OptionSpec> specs;
  for (const Value& element : array) {
    const std::string place = where + "options[" + std::to_string(specs.size()) + "]: ";
    if (element.get_if<Table>() == nullptr) throw PluginError(place + "is not a table");
    Reader reader(element.as<Table>(), place);
    OptionSpec spec;
    spec.name = reader.required<std::string>("name");
    spec.type = reader.one_of<OptionType>(reader.required<std::string>("type"), option_type_names, "type");
    spec.list = reader.optional<bool>("list");
    if (const Value* count = reader.find("count")) spec.count = reader.convert<std::int64_t>(*count, "count");
    spec.common = reader.optional<bool>("common");
    spec.required = reader.optional<bool>("required");
    spec.file = reader.optional<bool>("file");
    spec.output = reader.optional<bool>("output");
    spec.metric = reader.optional<bool>("metric");
    if (const Value* fallback = reader.find("default")) spec.fallback = *fallback;
    spec.minimum = reader.number("min");
    spec.maximum = reader.number("max");
    spec.open_minimum = reader.optional<bool>("open_min");
    spec.open_maximum = reader.optional<bool>("open_max");
    spec.choices = reader.strings("choices");
    spec.synonyms = reader.strings("synonyms");
    spec.fields = options_from(reader.optional<Array>("fields"), place);
    spec.plugins = reader.optional<std::string>("plugins");
    spec.help = reader.optional<std::string>("help");
    reader.finish();
    specs.push_back(std::move(spec));
  }
  return specs;
}

std::vector<HookSpec> hooks_from(const Array& array) {
  std::vector<HookSpec> hooks;
  for (const Value& element : array) {
    const std::string place = "hooks[" + std::to_string(hooks.size()) + "]: ";
    if (element.get_if<Table>() == nullptr) throw PluginError(place + "is not a table");
    Reader reader(element.as<Table>(), place);
    HookSpec hook;
    hook.event = reader.one_of<Event>(reader.required<std::string>("event"), event_names, "event");
    hook.phase = reader.one_of<Phase>(reader.required<std::string>("phase"), phase_names, "phase");
    for (const std::string& region : reader.strings("writes"))
      hook.writes = hook.writes | reader.one_of<Region>(region, region_names, "writes");
    const auto priority = reader.required<std::int64_t>("priority");
    if (priority < 0 || priority > 100)
      reader.fail("`priority` is " + std::to_string(priority) + ", expected 0 to 100");
    hook.priority = static_cast<int>(priority);
    hook.before = reader.strings("before");
    hook.after = reader.strings("after");
    hook.cadence = {reader.optional<std::string>("every"), reader.optional<std::string>("start"),
                    reader.optional<std::string>("end")};
    reader.finish();
    hooks.push_back(std::move(hook));
  }
  return hooks;
}

BuildFacts facts_from(const Table& table) {
  BuildFacts facts;
  Reader reader(table, "build: ");
  for (const Table::Entry& entry : table.entries())
    facts[entry.key] = reader.convert<std::string>(entry.value, entry.key.c_str());
  return facts;
}

void check_kind(const ManifestData& manifest) {
  const KindRow* found = find_kind(manifest.kind);
  if (found == nullptr)
    throw PluginError("its kind is \"" + manifest.kind +
                      "\", which this host does not know; a newer host may run it");
  const Kind& kind = found->kind;
  if (kind.revision != manifest.revision)
    throw PluginError("its kind is " + manifest.kind + "/" + std::to_string(manifest.revision) +
                      ", this host runs " + kind.name + "/" + std::to_string(kind.revision) +
                      "; rebuild it against this host's SDK");
}

bool is_digest(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

Table manifest_table(const ManifestData& manifest) {
  Table table;
  table.set("kind", manifest.kind);
  table.set("revision", manifest.revision);
  table.set("name", manifest.name);
  table.set("version", manifest.version);
  table.set("summary", manifest.summary);
  set_unless_empty(table, "needs", strings(manifest.needs));
  set_unless_empty(table, "provides", strings(manifest.provides));
  set_unless_empty(table, "conflicts", strings(manifest.conflicts));
  Array fires;
  for (const Event event : manifest.fires) fires.emplace_back(std::string(name(event)));
  set_unless_empty(table, "fires", std::move(fires));
  set_unless_empty(table, "options", option_array(manifest.options));
  set_unless_empty(table, "hooks", hook_array(manifest.hooks));
  return table;
}

void read_manifest(Reader& reader, ManifestData& manifest) {
  manifest.name = reader.required<std::string>("name");
  if (manifest.name.empty()) reader.fail("`name` is empty");
  manifest.kind = reader.required<std::string>("kind");
  const auto revision = reader.required<std::int64_t>("revision");
  manifest.revision =
      static_cast<int>(std::clamp<std::int64_t>(revision, 0, std::numeric_limits<int>::max()));
  check_kind(manifest);
  manifest.version = reader.required<std::string>("version");
  manifest.summary = reader.required<std::string>("summary");
  manifest.needs = reader.strings("needs");
  manifest.provides = reader.strings("provides");
  manifest.conflicts = reader.strings("conflicts");
  for (const std::string& event : reader.strings("fires"))
    manifest.fires.push_back(reader.one_of<Event>(event, event_names, "fires"));
  manifest.options = options_from(reader.optional<Array>("options"), "");
  manifest.hooks = hooks_from(reader.optional<Array>("hooks"));
  reader.finish();
}

}  // namespace

std::string to_text(std::span<const PluginFile> plugins) {
  const PluginFile& first = plugins.front();
  Table table;
  if (plugins.size() == 1) {
    table = manifest_table(first.manifest);
  } else {
    Array pack;
    for (const PluginFile& each : plugins) pack.emplace_back(manifest_table(each.manifest));
    table.set("plugins", std::move(pack));
  }
  Table build;
  for (const auto& [key, value] : first.build) build.set(key, value);
  table.set("build", std::move(build));
  const std::string body = to_plain_toml(table);

  Table digests;
  digests.set("segments", first.digest);
  digests.set("manifest", lib::Sha256::of(body));
  Table seal;
  seal.set("seal", std::move(digests));
  return body + to_plain_toml(seal);
}

std::vector<PluginFile> from_text(std::string_view text, const Contract& host) {
  const std::size_t line = text.rfind(seal_line);
  if (line == std::string_view::npos)
    throw PluginError("its manifest does not end with a seal; build the plugin again");
  const std::string_view body = text.substr(0, line + 1);
  const Table seal_table = parse_plain_toml(text.substr(line + 1));
  Reader seal(seal_table.find("seal")->as<Table>(), "seal: ");
  PluginFile file;
  file.digest = seal.required<std::string>("segments");
  const auto manifest_digest = seal.required<std::string>("manifest");
  seal.finish();
  if (seal_table.entries().size() != 1 || !is_digest(file.digest))
    throw PluginError("its manifest has a damaged seal; build the plugin again");
  if (manifest_digest != lib::Sha256::of(body))
    throw PluginError("its manifest was changed after it was sealed; build the plugin again");

  const Table table = parse_plain_toml(body);
  Reader reader(table, "manifest: ");
  // The build is checked before the rest, which another SDK may phrase otherwise.
  file.build = facts_from(reader.required<Table>("build"));
  for (const std::string& differences : {mismatch(file.build), mismatch(file.build, host)})
    if (!differences.empty()) throw PluginError("was built for another host: " + differences);

  if (table.find("plugins") == nullptr) {
    read_manifest(reader, file.manifest);
    return {std::move(file)};
  }
  std::vector<PluginFile> pack;
  for (const Value& each : reader.required<Array>("plugins")) {
    PluginFile& plugin = pack.emplace_back(file);
    plugin.place = pack.size() - 1;
    try {
      Reader own(reader.convert<Table>(each, "plugins"), "manifest: ");
      read_manifest(own, plugin.manifest);
      const auto same = [&own = plugin.manifest](const PluginFile& each) {
        return each.is(own.kind, own.name);
      };
      if (std::ranges::count_if(pack, same) > 1)
        own.fail("`name` is that of another " + plugin.manifest.kind +
                 " of the pack: give one of them another");
    } catch (const PluginError& error) {
      throw PluginError("its plugin " + std::to_string(pack.size()) + ", \"" + plugin.manifest.name +
                        "\": " + error.what());
    }
  }
  if (pack.empty()) reader.fail("`plugins` is empty, expected the plugins of a pack");
  reader.finish();
  return pack;
}

}  // namespace trainyard::plugins
