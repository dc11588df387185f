// Makes a shipped plugin for a test of its formulas, through the object that it exports.
#pragma once

#include <memory>
#include <string>

#include <trainyard/context.hpp>
#include <trainyard/plugin.hpp>
#include <trainyard/state.hpp>
#include <trainyard/testing/host.hpp>
#include <trainyard/testing/plugin.hpp>

namespace trainyard::test {

inline std::string shipped_file(const std::string& kind, const std::string& name) {
  return std::string(TRAINYARD_PLUGIN_DIR) + "/" + kind + "/lib" + name + ".so";
}

inline const PluginEntry& entry(const std::string& kind, const std::string& name) {
  return testing::open_plugin(shipped_file(kind, name), kind);
}

inline std::unique_ptr<Plugin> make(std::string_view kind, const std::string& name, const Table& options);

/// A host that makes parts of plugins from those that are shipped.
class QuietHost : public testing::FakeHost {
 public:
  QuietHost() {
    seed = 0;
    facts = {};
    maker = [](std::string_view kind, const Table& table) {
      return test::make(kind, table.find("type")->as<std::string>(), table);
    };
  }
};

inline std::unique_ptr<Plugin> make(std::string_view kind, const std::string& name, const Table& options) {
  static QuietHost host;
  const PluginEntry& plugin = entry(std::string(kind), name);
  std::unique_ptr<Plugin> made(make_plugin(plugin, manifest_of(plugin), options).plugin);
  made->set_host(host);
  return made;
}

/// A shipped plugin with its subscriptions.
template <class Interface>
class Subscribed : public testing::Made<Interface> {
 public:
  Subscribed(const std::string& name, const Table& options)
      : testing::Made<Interface>(shipped_file(Interface::kind.name, name), options) {
    plugin().set_host(host_);
  }
  Interface& plugin() { return **this; }
  const Interface& plugin() const { return static_cast<const Interface&>(this->base()); }

 private:
  inline static QuietHost host_;
};

/// A plugin with these options, defaults filled in; not checked against the manifest.
template <class Interface>
std::unique_ptr<Interface> make(const std::string& name, const Table& options = {}) {
  return std::unique_ptr<Interface>(
      dynamic_cast<Interface*>(make(Interface::kind.name, name, options).release()));
}

/// table({{"lr", 0.1}, {"momentum", 0.9}})
inline Table table(testing::OptionList entries) {
  return testing::options(entries);
}

}  // namespace trainyard::test
