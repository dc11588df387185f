// A plugin made from the file that was built, as the host does it: options checked and defaulted by the manifest,
// services of the host at hand, hooks called by their subscriptions.
//
//   trainyard::testing::Made<trainyard::Schedule> plugin(PLUGIN_FILE, {{"power", 2.0}});
//   plugin->factor({.progress = 0.5});
//
// trainyard_add_plugin_test() defines PLUGIN_FILE. Where a file has several plugins of the kind, {PLUGIN_FILE, "name"}
// says which.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <trainyard/context.hpp>
#include <trainyard/manifest_data.hpp>
#include <trainyard/plugin.hpp>
#include <trainyard/state.hpp>
#include <trainyard/value.hpp>

#include <trainyard/testing/host.hpp>

namespace trainyard::testing {

/// Makes a table: options({{"lr", 0.1}, {"momentum", 0.9}})
using OptionList = std::initializer_list<std::pair<const char*, Value>>;
Table options(OptionList entries);

/// A plugin of a file that was built: a path alone stands for the only one of its kind there, the name says
/// which of several.
struct BuiltPlugin {
  // NOLINTBEGIN: a path converts on purpose
  BuiltPlugin(const char* path) : file(path) {}
  BuiltPlugin(std::string path, std::string plugin = {}) : file(std::move(path)), name(std::move(plugin)) {}
  // NOLINTEND

  std::string file, name;
};

/// Opens a plugin's file, which stays open for good. Throws PluginError with the loader's words, and where a pack
/// has no such plugin of the kind, or several.
const PluginEntry& open_plugin(const BuiltPlugin& plugin, std::string_view kind);

/// Checks a table as the host does before it makes a plugin: unknown and missing options, wrong types,
/// bounds, words. Throws ConfigError.
void check_options(const ManifestData& manifest, const Table& table);

/// A plugin of any kind; `host()` is its own until another one is given.
class MadePlugin {
 public:
  /// Throws ConfigError for options that do not fit, and what the constructor throws.
  MadePlugin(const BuiltPlugin& plugin, const Table& options, const char* kind);
  ~MadePlugin();

  const ManifestData& manifest() const { return manifest_; }
  FakeHost& host() { return *host_; }
  Plugin& base() { return *plugin_; }
  const Plugin& base() const { return *plugin_; }

  /// Calls its hooks of the context's event, cadence aside.
  void fire(StepContext& context);
  /// Returns the subscription to an event. Throws PluginError where there is none.
  const HookSpec& hook(Event event) const;
  void* self() { return self_; }  ///< passed to hooks

  /// Return the plugin's saved state, and load one as from a checkpoint.
  State saved() const;
  void load(const State& state) { plugin_->load(StateReader(state)); }

 private:
  std::unique_ptr<FakeHost> host_;
  ManifestData manifest_;
  std::unique_ptr<Plugin> plugin_;
  void* self_ = nullptr;
};

template <class Interface>
class Made : public MadePlugin {
 public:
  explicit Made(const BuiltPlugin& plugin, OptionList given = {}) : Made(plugin, testing::options(given)) {}
  Made(const BuiltPlugin& plugin, const Table& table) : MadePlugin(plugin, table, Interface::kind.name) {}

  Interface& operator*() { return static_cast<Interface&>(base()); }
  Interface* operator->() { return static_cast<Interface*>(&base()); }
};

}  // namespace trainyard::testing
