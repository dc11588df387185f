// trainyard-seal FILE INCLUDE: asks the plugins of a freshly linked file for their manifests and adds them to
// it as text, with the digests of the headers in INCLUDE that it included. A step of the build, not of a run: faults of
// the plugin fail the build here, not a training later.
#include <dlfcn.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include <trainyard/plugin.hpp>

#include "core/plugins/check.hpp"
#include "core/plugins/elf.hpp"
#include "core/plugins/entry.hpp"
#include "core/plugins/fingerprint.hpp"
#include "core/plugins/manifest_text.hpp"
#include "core/runfile/find_plugin.hpp"
#include "core/seal/headers.hpp"

namespace {

using namespace trainyard;
using namespace trainyard::plugins;
namespace fs = std::filesystem;

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += "\n  " + line;
  return text;
}

/// Returns the manifests of the plugins that a file has.
std::vector<ManifestData> described(const std::string& path) {
  // RTLD_NOW, as the host uses it, reports a missing symbol here.
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) throw PluginError(std::string("does not load: ") + ::dlerror());
  void* symbol = ::dlsym(handle, entry_symbol);
  if (symbol == nullptr)
    throw PluginError(std::string(::dlerror()) +
                      "; does a source end with TRAINYARD_PLUGIN(Class), or TRAINYARD_PACK(First, Second)?");
  std::vector<ManifestData> manifests;
  for (const PluginEntry& entry : checked(reinterpret_cast<EntryFunction*>(symbol)())) {
    if (const std::string differences = mismatch(build_facts(entry.fingerprint)); !differences.empty())
      throw PluginError("was built for another host than this tool: " + differences);
    manifests.push_back(describe(entry));
  }
  return manifests;
}

/// Returns the headers that the objects of a plugin say they included (contract.hpp of the SDK).
Contract seen(const ElfFile& elf, const seal::Headers& headers) {
  const auto names = elf.section(".trainyard.headers", max_manifest_bytes);
  if (!names) throw PluginError("saw no header of the SDK; does it include <trainyard/KIND.hpp>?");
  Contract contract = headers.unnamed;
  std::istringstream stream(*names);
  for (std::string name; std::getline(stream, name, '\0');) {
    const auto found = headers.contract.find(name);
    if (found == headers.contract.end())
      throw PluginError("saw the header trainyard/" + name +
                        ", which is none of the SDK's; compile it again");
    contract.insert(*found);
  }
  return contract;
}

/// Runs objcopy on `from`, so that `to` has `text` as its manifest, replacing any older one.
void add_section(const std::string& from, const std::string& text_file, const std::string& to) {
  const std::string section(manifest_section), remove = "--remove-section=" + section,
                                               add = "--add-section=" + section + "=" + text_file,
                                               flags = "--set-section-flags=" + section + "=noload,readonly";
  const char* const arguments[] = {"objcopy",    remove.c_str(), add.c_str(), flags.c_str(),
                                   from.c_str(), to.c_str(),     nullptr};
  pid_t child = 0;
  if (const int error =
          ::posix_spawnp(&child, "objcopy", nullptr, nullptr, const_cast<char* const*>(arguments), environ);
      error != 0)
    throw PluginError(std::string("cannot be sealed: objcopy does not start (") + std::strerror(error) +
                      "); install binutils");
  int status = 0;
  if (::waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
    throw PluginError("cannot be sealed: objcopy failed, see above");
}

/// Restores the linker's program headers for the loader, since objcopy moves the end of the segment that
/// becomes read-only if a plugin has thread-local variables.
void restore_program_headers(const std::string& from, const fs::path& to) {
  std::ifstream original(from, std::ios::binary);
  Elf64_Ehdr header{};
  original.read(reinterpret_cast<char*>(&header), sizeof header);
  std::string table(header.e_phnum * sizeof(Elf64_Phdr), '\0');
  original.seekg(static_cast<std::streamoff>(header.e_phoff)).read(table.data(), std::ssize(table));
  std::fstream sealed(to, std::ios::binary | std::ios::in | std::ios::out);
  sealed.seekp(static_cast<std::streamoff>(header.e_phoff)).write(table.data(), std::ssize(table));
  if (!original || !sealed.flush())
    throw PluginError("cannot be sealed: " + to.string() + " cannot be written");
}

/// Removes its files on destruction, also after errors.
struct TemporaryFiles {
  fs::path text, object;
  ~TemporaryFiles() {
    std::error_code ignored;
    fs::remove(text, ignored);
    fs::remove(object, ignored);
  }
};

void seal_plugin(const std::string& path, const fs::path& include) {
  PluginFile file;
  {
    const ElfFile elf(path);
    if (const auto unique = elf.unique_symbols(); !unique.empty())
      throw PluginError(
          "exports symbols that all plugins of a process would share; build it with "
          "trainyard_add_plugin(), which sets -fno-gnu-unique and a version script:" +
          joined(unique));
    file.digest = elf.digest();
  }
  const std::vector<ManifestData> manifests = described(path);
  std::vector<std::string> all_wrong;
  for (const ManifestData& manifest : manifests) {
    auto wrong = problems(manifest);
    std::ranges::move(config::reserved_options(manifest), std::back_inserter(wrong));
    for (const std::string& each : wrong)
      all_wrong.push_back(manifests.size() > 1 ? manifest.kind + " " + manifest.name + ": " + each : each);
  }
  if (!all_wrong.empty()) throw PluginError("describes itself wrongly:" + joined(all_wrong));
  const seal::Headers headers = seal::read_headers(include);
  file.build = host_facts();
  file.build["headers"] = to_text(seen(ElfFile(path), headers));
  std::vector<PluginFile> plugins(manifests.size(), file);
  for (std::size_t i = 0; i < plugins.size(); ++i) plugins[i].manifest = manifests[i];
  const std::string text = to_text(plugins);
  if (text.size() > max_manifest_bytes)
    throw PluginError("has a manifest of " + std::to_string(text.size()) + " bytes, at most " +
                      std::to_string(max_manifest_bytes) + " are read");

  const std::string base = path + "." + std::to_string(::getpid());
  const TemporaryFiles temporary{base + ".toml", base + ".sealed"};
  std::ofstream stream(temporary.text, std::ios::binary);
  stream << text;
  stream.close();
  if (!stream) throw PluginError("cannot be sealed: " + temporary.text.string() + " cannot be written");
  add_section(path, temporary.text, temporary.object);
  restore_program_headers(path, temporary.object);

  // These are the checks of a host of this SDK, so that nothing that it would refuse leaves the build.
  const ElfFile sealed(temporary.object);
  if (sealed.section(manifest_section, max_manifest_bytes) != text ||
      to_text(from_text(text, headers.contract)) != text)
    throw PluginError("cannot be sealed: its manifest does not read back as it was written");
  if (sealed.digest() != file.digest)
    throw PluginError("cannot be sealed: objcopy changed its loadable segments");
  fs::permissions(temporary.object, fs::status(path).permissions());
  fs::rename(temporary.object, path);  // whole or not at all, also for a process that has the old file open
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) {
    std::cerr
        << "usage: trainyard-seal FILE INCLUDE\n"
           "Adds the manifest of a plugin to its shared object; INCLUDE holds the headers of the SDK.\n";
    return static_cast<int>(ExitCode::config);
  }
  // dlopen would search the system's libraries for a path without a slash.
  const std::string path = std::filesystem::absolute(arguments[1]).string();
  try {
    seal_plugin(path, arguments[2]);
    return static_cast<int>(ExitCode::done);
  } catch (const std::exception& error) {
    std::cerr << path << ": error: " << error.what() << '\n';
  }
  return static_cast<int>(ExitCode::plugin);
}
