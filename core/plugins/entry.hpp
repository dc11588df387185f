// The one symbol that a plugin exports. The system's loader does not check its type (loader-facts P13), so
// its magic number and size are checked before anything else of it is touched.
#pragma once

#include <exception>
#include <span>
#include <string>

#include <trainyard/manifest_data.hpp>
#include <trainyard/pack.hpp>

namespace trainyard::plugins {

inline constexpr const char* entry_symbol = "trainyard_plugin";
using EntryFunction = const void*();

/// Returns the plugins behind what the symbol gave: one, or those of a pack. Throws PluginError.
inline std::span<const PluginEntry> checked(const void* exported) {
  const auto require = [](bool sound, std::size_t found, std::size_t expected) {
    if (!sound)
      throw PluginError("exports a trainyard_plugin of " + std::to_string(found) +
                        " bytes, this host's has " + std::to_string(expected) +
                        "; rebuild it against this host's SDK");
  };
  std::span<const PluginEntry> plugins(static_cast<const PluginEntry*>(exported), 1);
  if (const PackEntry* pack = pack_of(exported)) {
    require(pack->size == sizeof *pack, pack->size, sizeof *pack);
    if (pack->plugins == nullptr || pack->count == 0 || pack->count > PackEntry::most)
      throw PluginError("exports a pack of " + std::to_string(pack->count) + " plugins, expected 1 to " +
                        std::to_string(PackEntry::most) +
                        ": end one source with TRAINYARD_PACK(First, Second)");
    plugins = {pack->plugins, pack->count};
  }
  for (const PluginEntry& entry : plugins) {
    if (exported == nullptr || entry.magic != PluginEntry::expected_magic)
      throw PluginError(
          "exports a trainyard_plugin of another make: end one source with TRAINYARD_PLUGIN(Class)");
    require(entry.size == sizeof entry && entry.describe != nullptr && entry.create != nullptr, entry.size,
            sizeof entry);
  }
  return plugins;
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
