#include <trainyard/testing/plugin.hpp>

#include <algorithm>
#include <span>
#include <vector>

#include <dlfcn.h>

#include <trainyard/error.hpp>
#include <trainyard/pack.hpp>

namespace trainyard::testing {
namespace {

[[noreturn]] void refuse(const std::string& option, const std::string& what) {
  throw ConfigError("option `" + option + "` " + what);
}

bool is_of(const OptionSpec& spec, const Value& value) {
  switch (spec.type) {
    case OptionType::boolean: return value.get_if<bool>() != nullptr;
    case OptionType::integer: return value.get_if<std::int64_t>() != nullptr;
    case OptionType::number:
      return value.get_if<double>() != nullptr || value.get_if<std::int64_t>() != nullptr;
    case OptionType::string:
    case OptionType::duration: return value.get_if<std::string>() != nullptr;
    case OptionType::table: return value.get_if<Table>() != nullptr;
  }
  return false;
}

void check_fields(const std::vector<OptionSpec>& specs, const Table& table, const std::string& prefix);

void check_one(const OptionSpec& spec, const Value& value, const std::string& name) {
  if (!is_of(spec, value))
    refuse(name, std::string("is a ") + value.type_name() + ", is to be a " +
                     std::string(option_type_names[static_cast<std::size_t>(spec.type)]));
  if (spec.type == OptionType::table && spec.plugins.empty())
    check_fields(spec.fields, value.as<Table>(), name + ".");
  if (const auto* text = value.get_if<std::string>()) {
    if (spec.type == OptionType::duration && !Duration::parse(*text))
      refuse(name, "is \"" + *text + "\", which is no duration like 5ba, 1ep or 10%");
    if (!spec.choices.empty() && std::ranges::find(spec.choices, *text) == spec.choices.end())
      refuse(name, "is \"" + *text + "\", which is none of its words");
  }
  const auto* integer = value.get_if<std::int64_t>();
  const auto* real = value.get_if<double>();
  if (integer == nullptr && real == nullptr) return;
  const double number = integer != nullptr ? static_cast<double>(*integer) : *real;
  const bool low = spec.minimum && (spec.open_minimum ? number <= *spec.minimum : number < *spec.minimum);
  const bool high = spec.maximum && (spec.open_maximum ? number >= *spec.maximum : number > *spec.maximum);
  if (low || high || number != number)
    refuse(name, "is " + std::to_string(number) + ", which is out of its range");
}

void check_fields(const std::vector<OptionSpec>& specs, const Table& table, const std::string& prefix) {
  for (const Table::Entry& entry : table.entries())
    if (std::ranges::none_of(specs, [&](const OptionSpec& spec) { return spec.name == entry.key; }))
      refuse(prefix + entry.key, "is unknown to the plugin");
  for (const OptionSpec& spec : specs) {
    const Value* value = table.find(spec.name);
    if (value == nullptr) {
      if (spec.required) refuse(prefix + spec.name, "is required, and was not given");
      continue;
    }
    const auto* list = value->get_if<Array>();
    if (spec.list != (list != nullptr))
      refuse(prefix + spec.name, spec.list ? "is to be a list" : "is not to be a list");
    if (list == nullptr)
      check_one(spec, *value, prefix + spec.name);
    else
      for (const Value& each : *list) check_one(spec, each, prefix + spec.name);
  }
}

}  // namespace

Table options(OptionList entries) {
  Table result;
  for (const auto& [key, value] : entries) result.set(key, value);
  return result;
}

const PluginEntry& open_plugin(const BuiltPlugin& plugin, std::string_view kind) {
  const std::string& file = plugin.file;
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw PluginError(file + " does not load: " + dlerror());
  auto* const exported = reinterpret_cast<const void* (*)()>(dlsym(library, "trainyard_plugin"));
  if (exported == nullptr) throw PluginError(file + " exports no plugin: TRAINYARD_PLUGIN(CLASS) is missing");
  const PackEntry* const pack = pack_of(exported());
  if (pack == nullptr) return *static_cast<const PluginEntry*>(exported());
  std::vector<const PluginEntry*> found;
  for (const PluginEntry& entry : std::span(pack->plugins, pack->count)) {
    const ManifestData manifest = manifest_of(entry);
    if (manifest.kind == kind && (plugin.name.empty() || plugin.name == manifest.name))
      found.push_back(&entry);
  }
  if (found.size() == 1) return *found.front();
  throw PluginError(file + " has " + std::to_string(found.size()) + " plugins of kind " + std::string(kind) +
                    (plugin.name.empty() ? "" : " called \"" + plugin.name + "\"") +
                    ", and the test wants one: give its name, {PLUGIN_FILE, \"name\"}");
}

void check_options(const ManifestData& manifest, const Table& table) {
  check_fields(manifest.options, table, "");
}

MadePlugin::MadePlugin(const BuiltPlugin& plugin, const Table& options, const char* kind)
    : host_(std::make_unique<FakeHost>()) {
  const PluginEntry& entry = open_plugin(plugin, kind);
  manifest_ = manifest_of(entry);
  if (manifest_.kind != kind)
    throw PluginError(plugin.file + " is of kind " + manifest_.kind + ", and the test wants kind " + kind);
  check_options(manifest_, options);
  const PluginEntry::Instance instance = make_plugin(entry, manifest_, options);
  plugin_.reset(instance.plugin);
  self_ = instance.self;
  plugin_->set_host(*host_);
}

MadePlugin::~MadePlugin() = default;

void MadePlugin::fire(StepContext& context) {
  for (const HookSpec& hook : manifest_.hooks)
    if (hook.event == context.event()) hook.call(self_, context);
}

const HookSpec& MadePlugin::hook(Event event) const {
  for (const HookSpec& hook : manifest_.hooks)
    if (hook.event == event) return hook;
  throw PluginError("it subscribes to no " + std::string(name(event)));
}

State MadePlugin::saved() const {
  State state{.owner = manifest_.kind + "/" + manifest_.name,
              .version = manifest_.version,
              .scalars = {},
              .tensors = {}};
  StateWriter writer(state);
  plugin_->save(writer);
  return state;
}

}  // namespace trainyard::testing
