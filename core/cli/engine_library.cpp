#include "core/cli/engine_library.hpp"

#include <dlfcn.h>

#include <filesystem>

#include <trainyard/error.hpp>

namespace trainyard::cli {

std::string home() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path().string();
}

const train::Engine& engine() {
  const std::string path = home() + "/lib/libtrainyard_engine.so";
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw PluginError(std::string("the engine does not load: ") + dlerror() +
                      "; build or install all of Trainyard, and keep LibTorch where it was built against");
  auto* const door = reinterpret_cast<const train::Engine* (*)()>(dlsym(library, "trainyard_engine"));
  const train::Engine* found = door != nullptr ? door() : nullptr;
  if (found == nullptr || found->magic != train::Engine::expected_magic)
    throw PluginError(path + " is the engine of another release; build both again");
  return *found;
}

}  // namespace trainyard::cli
