// static.*: tests of what the file says, by bounded reads.
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "core/engine/check/groups.hpp"
#include "core/plugins/elf.hpp"
#include "core/plugins/entry.hpp"
#include "core/plugins/loader.hpp"
#include "core/plugins/registry.hpp"

namespace trainyard::check {
namespace {

namespace fs = std::filesystem;

std::string listed(const std::vector<std::string>& names) {
  constexpr std::size_t most = 5;
  std::string text;
  for (std::size_t i = 0; i < std::min(most, names.size()); ++i) text += (i == 0 ? "" : ", ") + names[i];
  return names.size() > most ? text + " and " + std::to_string(names.size() - most) + " more" : text;
}

/// Returns the file names of the libraries that this process has loaded; the loader reuses them.
std::set<std::string> loaded_libraries() {
  std::set<std::string> names;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* into) {
        static_cast<std::set<std::string>*>(into)->insert(fs::path(info->dlpi_name).filename().string());
        return 0;
      },
      &names);
  return names;
}

void add_folders(const std::string& list, std::vector<std::string>& folders) {
  std::istringstream stream(list);
  for (std::string folder; std::getline(stream, folder, ':');)
    if (!folder.empty()) folders.push_back(folder);
}

/// Returns where the loader looks: folders that the file names, of the environment, and of the system.
std::vector<std::string> search_folders(const std::string& path, const plugins::ElfFile& file) {
  std::vector<std::string> folders;
  for (const Elf64_Sxword tag : {DT_RPATH, DT_RUNPATH})
    for (const std::string& list : file.dynamic_names(tag)) add_folders(list, folders);
  // The host opens a copy, in a folder of its own, with the libraries that lie in NAME.libs beside the file.
  const fs::path libraries = plugins::libraries_beside(path);
  for (std::string& folder : folders)
    if (folder == "$ORIGIN/" + libraries.filename().string()) folder = libraries.string();
  std::erase_if(folders,
                [](const std::string& folder) { return folder.find("ORIGIN") != std::string::npos; });
  if (const char* given = std::getenv("LD_LIBRARY_PATH")) add_folders(given, folders);
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/etc/ld.so.conf.d", ignored)) {
    std::ifstream lines(entry.path());
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with('/')) folders.push_back(line);
  }
  for (const char* usual : {"/lib", "/usr/lib", "/lib64", "/usr/lib64"}) folders.emplace_back(usual);
  return folders;
}

}  // namespace

Outcome seal(const Subject& subject) {
  plugins::read(subject.file.path);  // throws PluginError with the reason
  return {};
}

Outcome digest(const Subject& subject) {
  const std::string found = plugins::ElfFile(subject.file.path).digest();
  if (found == subject.file.digest) return {};
  return failed("the code has SHA-256 " + found + ", its seal says " + subject.file.digest +
                ": it was changed after it was sealed; build it again");
}

Outcome exports(const Subject& subject) {
  const plugins::ElfFile file(subject.file.path);
  if (const auto unique = file.unique_symbols(); !unique.empty())
    return failed("GNU_UNIQUE symbols, of which a process has one copy for all plugins: " + listed(unique) +
                  "; build with trainyard_add_plugin(), or give -fno-gnu-unique");
  std::vector<std::string> symbols = file.exported_symbols();
  if (std::erase(symbols, plugins::entry_symbol) == 0)
    return failed("trainyard_plugin is not exported; end one source with TRAINYARD_PLUGIN(Class)");
  if (symbols.empty()) return {};
  return failed("exported as well, where other objects could bind to them: " + listed(symbols) +
                "; build with trainyard_add_plugin(), or link with the version script plugin.map");
}

Outcome initialisers(const Subject& subject) {
  const std::size_t count = plugins::ElfFile(subject.file.path).initialisers();
  if (count <= 1) return {};  // one is the runtime's own
  return {Verdict::warn,
          std::to_string(count - 1) +
              " static initialiser(s) run when it is opened, where nothing can report an error: make such "
              "variables "
              "constexpr, or members that the constructor fills",
          {}};
}

Outcome libraries(const Subject& subject) {
  const plugins::ElfFile file(subject.file.path);
  const std::set<std::string> loaded = loaded_libraries();
  const std::vector<std::string> folders = search_folders(subject.file.path, file);
  std::vector<std::string> missing;
  for (const std::string& name : file.dynamic_names(DT_NEEDED)) {
    if (loaded.contains(name)) continue;
    const auto holds = [&](const std::string& folder) { return fs::exists(folder + "/" + name); };
    if (std::ranges::none_of(folders, holds))
      missing.push_back(name);
    else if (name.starts_with("libtorch") || name.starts_with("libc10.") || name.starts_with("libtrainyard"))
      return failed("it brings " + name + " of its own beside the host's; link Trainyard::sdk alone");
  }
  if (missing.empty()) return {};
  return failed(
      "not to be found: " + listed(missing) +
      "; install it, or put it into libNAME.libs beside the plugin, libNAME.so, and set INSTALL_RPATH on the "
      "target to $ORIGIN/libNAME.libs: the host opens a copy of the plugin, in another folder");
}

}  // namespace trainyard::check
