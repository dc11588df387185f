// trainyard-seal FILE: asks a freshly linked plugin for its manifest and adds it to the file as text. A step
// of the build, not of a run. What is wrong with the plugin fails the build here, not a training later.
#include <dlfcn.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include <trainyard/plugin.hpp>

#include "core/plugins/check.hpp"
#include "core/plugins/elf.hpp"
#include "core/plugins/entry.hpp"
#include "core/plugins/fingerprint.hpp"
#include "core/plugins/manifest_text.hpp"

namespace {

using namespace trainyard;
using namespace trainyard::plugins;
namespace fs = std::filesystem;

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += "\n  " + line;
  return text;
}

ManifestData described(const std::string& path) {
  // Bound now, as the host does it: a missing symbol is reported here.
  void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) throw PluginError(std::string("does not load: ") + ::dlerror());
  void* symbol = ::dlsym(handle, entry_symbol);
  if (symbol == nullptr)
    throw PluginError(std::string(::dlerror()) + "; does a source end with TRAINYARD_PLUGIN(Class)?");
  const PluginEntry& entry = checked(reinterpret_cast<EntryFunction*>(symbol)());
  if (const std::string differences = mismatch(build_facts(entry.fingerprint)); !differences.empty())
    throw PluginError("was built for another host than this tool: " + differences);
  return describe(entry);
}

/// Runs objcopy on `from`, so that `to` has `text` as its manifest, in place of one that it may have had.
void add_section(const std::string& from, const std::string& text_file, const std::string& to) {
  const std::string section(manifest_section);
  const std::vector<std::string> words = {"objcopy",
                                          "--remove-section=" + section,
                                          "--add-section=" + section + "=" + text_file,
                                          "--set-section-flags=" + section + "=noload,readonly",
                                          from,
                                          to};
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  pid_t child = 0;
  if (const int error = ::posix_spawnp(&child, "objcopy", nullptr, nullptr, arguments.data(), environ);
      error != 0)
    throw PluginError(std::string("cannot be sealed: objcopy does not start (") + std::strerror(error) +
                      "); install binutils");
  int status = 0;
  if (::waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
    throw PluginError("cannot be sealed: objcopy failed, see above");
}

/// Removes its files whatever happens.
struct TemporaryFiles {
  fs::path text, object;
  ~TemporaryFiles() {
    std::error_code ignored;
    fs::remove(text, ignored);
    fs::remove(object, ignored);
  }
};

void seal(const std::string& path) {
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
  file.manifest = described(path);
  if (const auto wrong = problems(file.manifest); !wrong.empty())
    throw PluginError("describes itself wrongly:" + joined(wrong));
  file.build = host_facts();
  const std::string text = to_text(file);
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

  // What the host will do, done once here: nothing that it would refuse leaves the build.
  const ElfFile sealed(temporary.object);
  if (sealed.section(manifest_section, max_manifest_bytes) != text || to_text(from_text(text)) != text)
    throw PluginError("cannot be sealed: its manifest does not read back as it was written");
  if (sealed.digest() != file.digest)
    throw PluginError("cannot be sealed: objcopy changed its loadable segments");
  fs::permissions(temporary.object, fs::status(path).permissions());
  fs::rename(temporary.object, path);  // whole or not at all, also for a process that has the old file open
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::cerr << "usage: trainyard-seal FILE\nAdds the manifest of a plugin to its shared object.\n";
    return static_cast<int>(ExitCode::config);
  }
  // A path without a slash would be searched for among the system's libraries.
  const std::string path = std::filesystem::absolute(arguments[1]).string();
  try {
    seal(path);
    return static_cast<int>(ExitCode::done);
  } catch (const std::exception& error) {
    std::cerr << path << ": error: " << error.what() << '\n';
  }
  return static_cast<int>(ExitCode::plugin);
}
