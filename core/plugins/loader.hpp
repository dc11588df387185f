// Loads the code of a plugin that the registry knows. Torch-free itself, but the shared objects are not: the
// engine does this, and the front only for plugins of kind `study`.
#pragma once

#include <memory>
#include <span>
#include <string>

#include <trainyard/plugin.hpp>

#include "core/plugins/registry.hpp"

namespace trainyard::plugins {

/// Returns the folder of the libraries that a plugin's file brings, libNAME.libs beside libNAME.so. The
/// loaded copy finds them under that name in its own folder ($ORIGIN).
std::string libraries_beside(const std::string& path);

/// A plugin loaded into the process. Copies are handles of the same generation. The shared object is never
/// unmapped, since objects, exceptions and type information of it may outlive every handle.
class LoadedPlugin {
 public:
  struct Instance {
    std::unique_ptr<Plugin> plugin;
    void* self;  ///< argument of the hook functions of `manifest()`; lives as long as `plugin`
  };

  /// Constructs the plugin with the options of a checked table; absent ones get their defaults. Exceptions of
  /// the constructor become a PluginError that names the plugin; Trainyard's own errors keep their class.
  Instance create(const Table& options) const;

  /// Returns the manifest that `describe` gave, with option setters and hook functions.
  const ManifestData& manifest() const { return file_->manifest; }
  const PluginFile& file() const { return *file_; }  ///< that it was copied from
  int generation() const { return generation_; }     ///< 1 for the first object that this process loaded

 private:
  friend LoadedPlugin load(const PluginFile& file, const LoadedPlugin* beside);
  LoadedPlugin() = default;

  std::span<const PluginEntry> object_;  ///< all plugins of its object
  const PluginEntry* entry_ = nullptr;
  std::shared_ptr<const PluginFile> file_;
  int generation_ = 0;
};

/// Opens a private copy of the file, so that nobody can change the code of a running process, after checking
/// its bytes against the sealed digest. Each call makes a new generation: load once, create often. With a
/// plugin of the same file and digest that is loaded, `beside`, that one's object is used. Throws PluginError
/// if the file changed since it was sealed or scanned, does not load, was built for another host, or
/// describes itself otherwise than its sealed manifest does. Loop thread only.
LoadedPlugin load(const PluginFile& file, const LoadedPlugin* beside = nullptr);

/// Returns how many generations of plugins this process holds; each costs some 20 KB and five mappings.
int generations();

}  // namespace trainyard::plugins
