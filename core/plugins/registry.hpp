// The plugins that a run may use, known only by their sealed manifests: no code of a plugin runs here.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/plugins/plugin_file.hpp"

namespace trainyard::plugins {

/// A refused file, with one message that names the file, the rule, what was found, what was expected and how
/// to mend it.
struct Refusal {
  std::string path;
  std::string message;
};

/// Reads the plugins of one file; throws PluginError with the message of a Refusal.
std::vector<PluginFile> read(const std::string& path);

class Registry {
 public:
  Registry() = default;
  /// Acts as if a scan had found these plugins; for tests.
  explicit Registry(std::vector<PluginFile> files) : files_(std::move(files)) {}

  /// Reads every lib*.so below the folders, in order, each file once; a missing folder is a refusal.
  static Registry scan(const std::vector<std::string>& folders);

  /// Scans the same folders again, as plugins may have been built since; `kept` take the place of their like.
  Registry rescan(const std::vector<PluginFile>& kept) const;

  /// Returns all plugins of a kind and name; several are ambiguous.
  std::vector<const PluginFile*> find(std::string_view kind, std::string_view name) const;
  /// Returns the names of a kind, sorted, for suggestions.
  std::vector<std::string> names(std::string_view kind) const;

  /// Returns why libNAME.so, the file of the plugin of that name, was refused; null if it does not exist.
  const Refusal* refused(std::string_view name) const;

  const std::vector<PluginFile>& files() const { return files_; }
  const std::vector<Refusal>& refusals() const { return refusals_; }

 private:
  std::vector<std::string> folders_;
  std::vector<PluginFile> files_;
  std::vector<Refusal> refusals_;
};

}  // namespace trainyard::plugins
