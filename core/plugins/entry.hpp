// The one symbol that a plugin exports. The system's loader does not check its type (loader-facts P13), so
// its magic number and size are checked before anything else of it is touched.
#pragma once

#include <exception>
#include <string>

#include <trainyard/manifest_data.hpp>

namespace trainyard::plugins {

inline constexpr const char* entry_symbol = "trainyard_plugin";
using EntryFunction = const PluginEntry*();

inline const PluginEntry& checked(const PluginEntry* entry) {
  if (entry == nullptr || entry->magic != PluginEntry::expected_magic)
    throw PluginError(
        "exports a trainyard_plugin of another make: end one source with TRAINYARD_PLUGIN(Class)");
  if (entry->size != sizeof(PluginEntry) || entry->describe == nullptr || entry->create == nullptr)
    throw PluginError("exports a trainyard_plugin of " + std::to_string(entry->size) +
                      " bytes, this host's has " + std::to_string(sizeof(PluginEntry)) +
                      "; rebuild it against this host's SDK");
  return *entry;
}

inline ManifestData describe(const PluginEntry& entry) {
  try {
    return manifest_of(entry);
  } catch (const std::exception& error) {
    throw PluginError(std::string("its describe() threw: ") + error.what());
  } catch (...) {
    throw PluginError("its describe() threw something that is no std::exception");
  }
}

}  // namespace trainyard::plugins
