#include "core/cli/engine_library.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>

#include <trainyard/error.hpp>

namespace trainyard::cli {

std::string home() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path().string();
}

namespace {

/// Loads the LibTorch that the environment names before any other, which it then replaces.
void load_libtorch() {
  const char* folder = std::getenv("TRAINYARD_LIBTORCH");
  if (folder == nullptr || *folder == '\0') return;
  const std::string path = std::string(folder) + "/lib/libtorch_cpu.so";
  if (dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr)
    throw PluginError(std::string("TRAINYARD_LIBTORCH: ") + dlerror() +
                      "; it is to name the folder of LibTorch " + TRAINYARD_LIBTORCH_VERSION +
                      ", which has lib/libtorch_cpu.so");
}

/// Opens a library of this installation, in which the function `door` returns what it exports.
template <class Exported>
const Exported& opened(const char* file, const char* door) {
  load_libtorch();
  const std::string path = home() + "/lib/" + file;
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw PluginError(std::string("the engine does not load: ") + dlerror() +
                      "; set TRAINYARD_LIBTORCH to the folder of LibTorch " + TRAINYARD_LIBTORCH_VERSION +
                      ", or put that folder at " + home() +
                      "/torch; where a file of Trainyard's own is missing, install all of it");
  auto* const open = reinterpret_cast<const Exported* (*)()>(dlsym(library, door));
  const Exported* found = open != nullptr ? open() : nullptr;
  if (found == nullptr || found->magic != Exported::expected_magic)
    throw PluginError(path + " is the engine of another release; build both again");
  return *found;
}

}  // namespace

const train::Engine& engine() {
  return opened<train::Engine>("libtrainyard_engine.so", "trainyard_engine");
}

const check::Checker& checker() {
  return opened<check::Checker>("libtrainyard_checker.so", "trainyard_checker");
}

}  // namespace trainyard::cli
