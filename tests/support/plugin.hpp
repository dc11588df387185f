// Makes a shipped plugin for a test of its formulas, through the object that it exports.
#pragma once

#include <dlfcn.h>

#include <memory>
#include <stdexcept>
#include <string>

#include <trainyard/batch.hpp>
#include <trainyard/context.hpp>
#include <trainyard/host.hpp>
#include <trainyard/plugin.hpp>
#include <trainyard/state.hpp>

namespace trainyard::test {

inline const PluginEntry& entry(const std::string& kind, const std::string& name) {
  const std::string path = std::string(TRAINYARD_PLUGIN_DIR) + "/" + kind + "/lib" + name + ".so";
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) throw std::runtime_error(dlerror());
  return *reinterpret_cast<const PluginEntry* (*)()>(dlsym(handle, "trainyard_plugin"))();
}

inline std::unique_ptr<Plugin> make(std::string_view kind, const std::string& name, const Table& options);

/// A host that makes parts of plugins, and says nothing.
class QuietHost : public Host {
 public:
  void log(LogLevel, std::string_view) override {}
  void journal(std::string_view, std::string_view) override {}
  void metric(std::string_view, double) override {}
  RandomStream random(std::string_view purpose) const override { return {0, std::string(purpose)}; }
  const RunFacts& run() const override {
    static const RunFacts facts;
    return facts;
  }
  std::vector<Batch> batches(std::string_view split, std::int64_t) override {
    throw ConfigError("this host has no split " + std::string(split));
  }
  std::shared_ptr<void> thread(std::string_view, std::function<void(std::stop_token)>) override {
    throw std::logic_error("this host has no threads");
  }
  void leave(std::shared_ptr<void>) override {}
  void swap(std::string_view slot, std::string_view, const std::vector<std::string>&) override {
    throw std::logic_error("a swap of " + std::string(slot) + " was asked for, and this host does none");
  }
  std::unique_ptr<Plugin> make(std::string_view kind, const Table& table) override {
    return test::make(kind, table.find("type")->as<std::string>(), table);
  }
};

inline std::unique_ptr<Plugin> make(std::string_view kind, const std::string& name, const Table& options) {
  static QuietHost host;
  const PluginEntry& plugin = entry(std::string(kind), name);
  ManifestData manifest;
  plugin.describe(manifest);
  std::unique_ptr<Plugin> made(plugin.create(manifest, options).plugin);
  made->set_host(host);
  return made;
}

/// A shipped plugin with its subscriptions.
template <class Interface>
class Subscribed {
 public:
  Subscribed(const std::string& name, const Table& options) {
    const PluginEntry& plugin = entry(std::string(Interface::kind.name), name);
    plugin.describe(manifest_);
    const PluginEntry::Instance instance = plugin.create(manifest_, options);
    plugin_.reset(dynamic_cast<Interface*>(instance.plugin));
    plugin_->set_host(host_);
    self_ = instance.self;
  }
  /// Calls its hooks of the context's event, as the host does, cadence aside.
  void fire(StepContext& context) {
    for (const HookSpec& hook : manifest_.hooks)
      if (hook.event == context.event()) hook.call(self_, context);
  }
  const HookSpec& hook(Event event) const {
    for (const HookSpec& hook : manifest_.hooks)
      if (hook.event == event) return hook;
    throw std::runtime_error("no hook");
  }
  State saved() const {
    State state{.owner = std::string(Interface::kind.name), .version = {}, .scalars = {}, .tensors = {}};
    StateWriter writer(state);
    plugin_->save(writer);
    return state;
  }
  Interface& plugin() { return *plugin_; }
  const Interface& plugin() const { return *plugin_; }

 private:
  inline static QuietHost host_;
  ManifestData manifest_;
  std::unique_ptr<Interface> plugin_;
  void* self_ = nullptr;
};

/// A plugin with these options, defaults filled in; not checked against the manifest.
template <class Interface>
std::unique_ptr<Interface> make(const std::string& name, const Table& options = {}) {
  return std::unique_ptr<Interface>(
      dynamic_cast<Interface*>(make(Interface::kind.name, name, options).release()));
}

/// table({{"lr", 0.1}, {"momentum", 0.9}})
inline Table table(std::initializer_list<std::pair<const char*, Value>> entries) {
  Table result;
  for (const auto& [key, value] : entries) result.set(key, value);
  return result;
}

}  // namespace trainyard::test
