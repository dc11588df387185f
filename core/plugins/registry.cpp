#include "core/plugins/registry.hpp"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>

#include <trainyard/error.hpp>

#include "core/plugins/elf.hpp"
#include "core/plugins/host_verbs.hpp"
#include "core/plugins/kinds.hpp"
#include "core/plugins/manifest_text.hpp"

namespace trainyard::plugins {
namespace {

/// Throws PluginError for a tool with the name of a host's verb, since a tool is called as a verb.
void refuse_host_verb(const ManifestData& manifest) {
  const KindRow* const kind = find_kind(manifest.kind);
  if (kind != nullptr && kind->is_verb && is_host_verb(manifest.name))
    throw PluginError("is a tool called \"" + manifest.name + "\", as the host's verb trainyard " +
                      manifest.name + ": give the tool another name");
}

/// Reads the manifests of a file. A scan reads a few kilobytes per file: the digest of the code is only computed
/// when the file is loaded.
std::vector<PluginFile> read(const ElfFile& elf, const std::string& path) {
  const auto text = elf.section(manifest_section, max_manifest_bytes);
  if (!text)
    throw PluginError("has no manifest (ELF section " + std::string(manifest_section) +
                      "): it is no plugin, or was not sealed; build it with trainyard_add_plugin()");
  std::vector<PluginFile> plugins = from_text(*text);
  for (PluginFile& plugin : plugins) {
    refuse_host_verb(plugin.manifest);
    plugin.path = path;
  }
  return plugins;
}

/// Returns the plugin files below a folder, sorted so that reports do not depend on the file system.
std::vector<std::string> shared_objects(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (const std::string name = entry.path().filename().string();
        name.starts_with("lib") && name.ends_with(".so") && !entry.is_directory() &&
        entry.path().parent_path().extension() != ".libs")
      paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

std::vector<PluginFile> read(const std::string& path) {
  try {
    return read(ElfFile(path), path);
  } catch (const PluginError& error) {
    throw PluginError(path + ": " + error.what());
  }
}

Registry Registry::scan(const std::vector<std::string>& folders) {
  Registry registry;
  registry.folders_ = folders;
  std::set<std::pair<dev_t, ino_t>> seen;
  for (const std::string& folder : folders) {
    std::vector<std::string> paths;
    try {
      paths = shared_objects(folder);
    } catch (const std::filesystem::filesystem_error& error) {
      registry.refusals_.push_back({folder, error.path1().string() +
                                                ": this folder of plugins cannot be read: " +
                                                error.code().message() + "; correct [plugins] paths"});
      continue;
    }
    for (const std::string& path : paths) {
      try {
        const ElfFile elf(path);
        if (!seen.emplace(elf.device(), elf.inode()).second) continue;
        std::ranges::move(read(elf, path), std::back_inserter(registry.files_));
      } catch (const PluginError& error) {
        registry.refusals_.push_back({path, path + ": " + error.what()});
      }
    }
  }
  return registry;
}

Registry Registry::rescan(const std::vector<PluginFile>& kept) const {
  Registry registry = folders_.empty() ? *this : scan(folders_);
  for (const PluginFile& file : kept) {
    std::erase_if(registry.files_,
                  [&](const PluginFile& each) { return each.is(file.manifest.kind, file.manifest.name); });
    registry.files_.push_back(file);
  }
  return registry;
}

std::vector<const PluginFile*> Registry::find(std::string_view kind, std::string_view name) const {
  std::vector<const PluginFile*> found;
  for (const PluginFile& file : files_)
    if (file.is(kind, name)) found.push_back(&file);
  return found;
}

std::vector<std::string> Registry::names(std::string_view kind) const {
  std::set<std::string> names;
  for (const PluginFile& file : files_)
    if (file.manifest.kind == kind) names.insert(file.manifest.name);
  return {names.begin(), names.end()};
}

const Refusal* Registry::refused(std::string_view name) const {
  const std::string file = "/lib" + std::string(name) + ".so";
  for (const Refusal& refusal : refusals_)
    if (refusal.path.ends_with(file)) return &refusal;
  return nullptr;
}

}  // namespace trainyard::plugins
