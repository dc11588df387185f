#include "core/engine/distributed/nccl.hpp"

#include <dlfcn.h>

#include <filesystem>

#include <trainyard/error.hpp>

namespace trainyard::distributed {

std::string nccl_library() {
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  return program.parent_path().parent_path().string() + "/lib/trainyard/trainyard_nccl.so";
}

MakeNccl* load_nccl(const std::string& path) {
  const std::string wanted = "several ranks on GPUs exchange by NCCL, ";
  const std::string mend = ", or set run.device = \"cpu\"";
  if (!std::filesystem::exists(path))
    throw ConfigError(
        wanted + "and this build is without it (there is no " + path +
        "); install CUDA's toolkit and NCCL's header nccl.h (package libnccl-dev), and build again" + mend);
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const make = library == nullptr ? nullptr : dlsym(library, "trainyard_nccl");
  if (make == nullptr)
    throw ConfigError(
        wanted + "which does not load (" + dlerror() +
        "); install that library (NCCL's own, libnccl.so.2, by pip install nvidia-nccl-cu13) or "
        "build again" +
        mend);
  return reinterpret_cast<MakeNccl*>(make);
}

}  // namespace trainyard::distributed
