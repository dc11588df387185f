// Makes a shipped plugin for a test of its formulas, through the object that it exports.
#pragma once

#include <dlfcn.h>

#include <memory>
#include <stdexcept>
#include <string>

#include <trainyard/plugin.hpp>

namespace trainyard::test {

inline const PluginEntry& entry(const std::string& kind, const std::string& name) {
  const std::string path = std::string(TRAINYARD_PLUGIN_DIR) + "/" + kind + "/lib" + name + ".so";
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) throw std::runtime_error(dlerror());
  return *reinterpret_cast<const PluginEntry* (*)()>(dlsym(handle, "trainyard_plugin"))();
}

/// A plugin with these options, defaults filled in; not checked against the manifest.
template <class Interface>
std::unique_ptr<Interface> make(const std::string& name, const Table& options = {}) {
  const PluginEntry& plugin = entry(Interface::kind.name, name);
  ManifestData manifest;
  plugin.describe(manifest);
  return std::unique_ptr<Interface>(dynamic_cast<Interface*>(plugin.create(manifest, options).plugin));
}

/// table({{"lr", 0.1}, {"momentum", 0.9}})
inline Table table(std::initializer_list<std::pair<const char*, Value>> entries) {
  Table result;
  for (const auto& [key, value] : entries) result.set(key, value);
  return result;
}

}  // namespace trainyard::test
