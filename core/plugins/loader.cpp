#include "core/plugins/loader.hpp"

#include <dlfcn.h>
#include <stdlib.h>

#include <atomic>
#include <boost/dll/shared_library.hpp>
#include <cerrno>
#include <cstring>
#include <deque>
#include <filesystem>

#include "core/plugins/elf.hpp"
#include "core/plugins/entry.hpp"
#include "core/plugins/fingerprint.hpp"
#include "core/plugins/manifest_text.hpp"

namespace trainyard::plugins {
namespace {

namespace fs = std::filesystem;

std::atomic<int> loaded{0};

/// Returns the loaded libraries, which are never destroyed: statics may still hold objects of plugins at
/// exit.
std::deque<boost::dll::shared_library>& residents() {
  static auto& libraries = *new std::deque<boost::dll::shared_library>();
  return libraries;
}

/// A temporary folder that nobody else can write; removed with this object.
class PrivateFolder {
 public:
  PrivateFolder() {
    std::error_code error;
    const fs::path parent = fs::temp_directory_path(error);
    path_ = (parent / "trainyard-XXXXXX").string();
    if (error || ::mkdtemp(path_.data()) == nullptr)
      throw PluginError("cannot be copied: no temporary folder can be made (" +
                        (error ? error.message() : std::strerror(errno)) +
                        "); set TMPDIR to a folder that can be written");
  }
  ~PrivateFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;

  fs::path operator/(const std::string& name) const { return fs::path(path_) / name; }

 private:
  std::string path_;
};

boost::dll::shared_library open(const fs::path& copy) {
  using boost::dll::load_mode::rtld_local;
  using boost::dll::load_mode::rtld_now;
  boost::system::error_code error;
  // RTLD_NOW makes a missing symbol an error here rather than the end of the process at its first call (P7).
  boost::dll::shared_library library(boost::dll::fs::path(copy.string()), error, rtld_now | rtld_local);
  if (!error) return library;
  const char* reason = ::dlerror();  // Boost keeps only a code; dlerror() says what is missing
  throw PluginError("does not load: " + (reason != nullptr ? reason : error.message()) +
                    "; if a library is missing, install it; if the temporary folder forbids execution, set "
                    "TMPDIR to one that does not");
}

/// Returns the first line in which two texts differ, from each.
std::string first_difference(std::string_view sealed, std::string_view live) {
  const auto line = [](std::string_view& text) {
    const std::string_view first = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), first.size() + 1));
    return first;
  };
  while (true) {
    const std::string_view a = line(sealed), b = line(live);
    if (a != b) return "sealed `" + std::string(a) + "`, described `" + std::string(b) + "`";
    if (sealed.empty() && live.empty()) return "no line";
  }
}

/// Opens the file's copy and checks everything about it.
std::span<const PluginEntry> resident_object(const PluginFile& file, int generation) {
  const PrivateFolder folder;
  // The name must be new, since the system's loader tells objects apart by name, device and inode (P2).
  const fs::path copy = folder / (fs::path(file.path).stem().string().substr(std::strlen("lib")) + "-" +
                                  file.digest.substr(0, 16) + "-" + std::to_string(generation) + ".so");
  std::error_code error;
  if (!fs::copy_file(file.path, copy, error))
    throw PluginError("cannot be copied to " + copy.string() + ": " + error.message());
  // Libraries that the plugin brings are linked beside the copy, where it looks for them.
  const fs::path libraries = libraries_beside(file.path);
  if (fs::is_directory(libraries, error))
    fs::create_directory_symlink(libraries, folder / libraries.filename().string());
  if (const std::string digest = ElfFile(copy.string()).digest(); digest != file.digest)
    throw PluginError("its code has SHA-256 " + digest + ", its seal says " + file.digest +
                      ": it was changed after it was sealed or since the run began; build it again");
  // From here on its code has run, so it stays loaded, whatever the checks find.
  const boost::dll::shared_library& library = residents().emplace_back(open(copy));
  loaded = generation;
  if (!library.has(entry_symbol))
    throw PluginError(std::string("exports no ") + entry_symbol +
                      "; end one source with TRAINYARD_PLUGIN(Class)");
  return checked(library.get<EntryFunction>(entry_symbol)());
}

}  // namespace

std::string libraries_beside(const std::string& path) {
  return fs::absolute(path).replace_extension(".libs").string();
}

LoadedPlugin load(const PluginFile& file, const LoadedPlugin* beside) {
  LoadedPlugin plugin;
  plugin.generation_ = beside != nullptr ? beside->generation_ : loaded + 1;
  try {
    plugin.object_ = beside != nullptr ? beside->object_ : resident_object(file, plugin.generation_);
    if (file.place >= plugin.object_.size())
      throw PluginError("exports " + std::to_string(plugin.object_.size()) +
                        " plugins, its seal has more; build it again");
    plugin.entry_ = &plugin.object_[file.place];
    // Checked again from the code itself, as the sealed facts are only text.
    if (const std::string differences = mismatch(build_facts(plugin.entry_->fingerprint));
        !differences.empty())
      throw PluginError("was built for another host: " + differences);
    PluginFile live{file.path, describe(*plugin.entry_), file.build, file.digest, file.place};
    const std::string sealed_text = to_text(file), live_text = to_text(live);
    if (sealed_text != live_text)
      throw PluginError(
          "describes itself otherwise than its seal: " + first_difference(sealed_text, live_text) +
          "; a description must not depend on time, environment or machine");
    plugin.file_ = std::make_shared<const PluginFile>(std::move(live));
  } catch (const PluginError& error) {
    const bool of_pack = plugin.object_.size() > 1;
    throw PluginError(file.path + ": " +
                      (of_pack ? file.manifest.kind + " " + file.manifest.name + ": " : "") + error.what());
  }
  return plugin;
}

LoadedPlugin::Instance LoadedPlugin::create(const Table& options) const {
  const std::string who = manifest().kind + " " + manifest().name + " (" + file_->path + "): ";
  PluginEntry::Instance made{};
  try {
    made = make_plugin(*entry_, manifest(), options);
  } catch (const Error& error) {
    throw Error(error.code(), who + error.what());
  } catch (const std::exception& error) {
    throw PluginError(who + "its constructor threw: " + error.what());
  } catch (...) {
    throw PluginError(who + "its constructor threw something that is no std::exception");
  }
  return {std::unique_ptr<Plugin>(made.plugin), made.self};
}

int generations() {
  return loaded;
}

}  // namespace trainyard::plugins
