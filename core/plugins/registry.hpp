// The plugins that a run may use, known by their sealed manifests only: nothing here runs code of a plugin.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/plugins/plugin_file.hpp"

namespace trainyard::plugins {

/// A file that was refused: one message that names the file, the rule, what was found, what was expected and
/// how to mend it.
struct Refusal {
  std::string path;
  std::string message;
};

/// One file; throws PluginError with the message of a Refusal.
PluginFile read(const std::string& path);

class Registry {
 public:
  Registry() = default;
  /// As if a scan had found these: for tests.
  explicit Registry(std::vector<PluginFile> files) : files_(std::move(files)) {}

  /// Reads every lib*.so below the folders, in order, each file once; a folder that does not exist is a
  /// refusal.
  static Registry scan(const std::vector<std::string>& folders);

  /// The same folders again: plugins may have been built since.
  Registry rescan() const { return folders_.empty() ? *this : scan(folders_); }

  /// All files that provide kind and name: none, one, or ambiguous.
  std::vector<const PluginFile*> find(std::string_view kind, std::string_view name) const;
  /// Names of a kind, sorted, for suggestions.
  std::vector<std::string> names(std::string_view kind) const;

  /// Why the file that a plugin of that name lies in, libNAME.so, was refused; null: there is no such file.
  const Refusal* refused(std::string_view name) const;

  const std::vector<PluginFile>& files() const { return files_; }
  const std::vector<Refusal>& refusals() const { return refusals_; }

 private:
  std::vector<std::string> folders_;
  std::vector<PluginFile> files_;
  std::vector<Refusal> refusals_;
};

}  // namespace trainyard::plugins
