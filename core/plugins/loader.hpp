// Loads the code of a plugin that the registry knows. Torch-free itself, but the shared objects are not: the
// engine does this, and the front for plugins of kind `study` alone.
#pragma once

#include <memory>
#include <string>

#include <trainyard/plugin.hpp>

#include "core/plugins/registry.hpp"

namespace trainyard::plugins {

/// Where the libraries lie that the plugin of a file brings, libNAME.libs beside libNAME.so. Its copy finds them under
/// that name in its own folder ($ORIGIN).
std::string libraries_beside(const std::string& path);

/// A resident plugin. Copies are handles of the same generation. The shared object is never unmapped, since
/// objects, exceptions and type information of it may outlive every handle.
class LoadedPlugin {
 public:
  struct Instance {
    std::unique_ptr<Plugin> plugin;
    void* self;  ///< what the hook functions of `manifest()` get; lives as long as `plugin`
  };

  /// Constructs the plugin with the options of a checked table; absent ones get their defaults. What the
  /// constructor throws comes out as a PluginError that names the plugin, Trainyard's own errors keep their
  /// class.
  Instance create(const Table& options) const;

  /// As `describe` gave it: with option setters and hook functions.
  const ManifestData& manifest() const { return *manifest_; }
  const std::string& path() const { return path_; }  ///< the file it was copied from
  int generation() const { return generation_; }     ///< 1 for the first object of this process

 private:
  friend LoadedPlugin load(const PluginFile& file);
  LoadedPlugin() = default;

  const PluginEntry* entry_ = nullptr;
  std::shared_ptr<const ManifestData> manifest_;
  std::string path_;
  int generation_ = 0;
};

/// Opens a private copy of the file, so that nobody can change the code of a running process, after its bytes
/// were checked against the sealed digest. Each call makes a new generation: load once, create often. Throws
/// PluginError where the file changed since it was sealed or scanned, does not load, was built for another
/// host, or describes itself otherwise than its sealed manifest does. Loop thread only.
LoadedPlugin load(const PluginFile& file);

/// Generations of plugins that this process holds; each costs some 20 KB and five mappings.
int generations();

}  // namespace trainyard::plugins
