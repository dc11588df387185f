#include "nvrtc.hpp"

#ifdef TRAINYARD_CUDA
#include <ATen/detail/CUDAHooksInterface.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nvrtc.h>

#include <filesystem>

#include <trainyard/error.hpp>

namespace compiled {
namespace {

using trainyard::ConfigError;
using trainyard::PluginError;

/// Where the loader looks, else what LibTorch has: its own library for NVRTC lies beside it and knows where that is.
void* open_library() {
  const std::string name = "libnvrtc.so." + std::to_string(CUDART_VERSION / 1000);
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library != nullptr) return library;
  const std::string error = dlerror();
  Dl_info torch{};
  if (dladdr(reinterpret_cast<const void*>(&at::detail::getCUDAHooks), &torch) != 0) {
    const auto beside = std::filesystem::path(torch.dli_fname).parent_path() / "libcaffe2_nvrtc.so";
    library = dlopen(beside.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr)
    throw ConfigError("chains of operators are compiled by NVRTC, which does not load (" + error +
                      "); install it (pip install nvidia-cuda-nvrtc) and name its folder in "
                      "LD_LIBRARY_PATH, or set executor.fuse = \"none\"");
  return library;
}

/// A function of this name, of the type that the header gives it: nothing is linked.
template <class Function>
Function* find(const char* name) {
  static void* const library = open_library();
  void* const found = dlsym(library, name);
  if (found == nullptr)
    throw ConfigError(std::string("NVRTC has no ") + name + "; install one of this build's CUDA, " +
                      std::to_string(CUDART_VERSION / 1000) + ", or set executor.fuse = \"none\"");
  return reinterpret_cast<Function*>(found);
}
#define TRAINYARD_NVRTC(name) find<decltype(name)>(#name)

/// What is compiled, with what NVRTC says of it.
class NvrtcProgram {
 public:
  explicit NvrtcProgram(const std::string& text) {
    check(TRAINYARD_NVRTC(nvrtcCreateProgram)(&program_, text.c_str(), "chains.cu", 0, nullptr, nullptr),
          "a program");
  }
  ~NvrtcProgram() { TRAINYARD_NVRTC(nvrtcDestroyProgram)(&program_); }
  NvrtcProgram(const NvrtcProgram&) = delete;
  NvrtcProgram& operator=(const NvrtcProgram&) = delete;

  std::vector<char> compile(const std::string& architecture) {
    const std::string option = "--gpu-architecture=" + architecture;
    const char* const options[] = {option.c_str(), "--std=c++17"};
    const nvrtcResult result = TRAINYARD_NVRTC(nvrtcCompileProgram)(program_, 2, options);
    if (result != NVRTC_SUCCESS)
      throw PluginError("chains for " + architecture + ": " + text_of(result) + ": " + log());
    std::size_t size = 0;
    check(TRAINYARD_NVRTC(nvrtcGetCUBINSize)(program_, &size), "the size of a binary");
    std::vector<char> binary(size);
    check(TRAINYARD_NVRTC(nvrtcGetCUBIN)(program_, binary.data()), "a binary");
    return binary;
  }

 private:
  static std::string text_of(nvrtcResult result) { return TRAINYARD_NVRTC(nvrtcGetErrorString)(result); }
  static void check(nvrtcResult result, const char* what) {
    if (result != NVRTC_SUCCESS)
      throw PluginError(std::string("NVRTC gives not ") + what + ": " + text_of(result));
  }
  std::string log() const {
    std::size_t size = 0;
    TRAINYARD_NVRTC(nvrtcGetProgramLogSize)(program_, &size);
    std::string text(size, '\0');
    TRAINYARD_NVRTC(nvrtcGetProgramLog)(program_, text.data());
    text.resize(text.find_last_not_of('\0') + 1);  // it counts its end
    return text;
  }

  nvrtcProgram program_ = nullptr;
};

}  // namespace

std::vector<char> compile_for(int capability, const std::string& text) {
  return NvrtcProgram(text).compile("sm_" + std::to_string(capability));
}

}  // namespace compiled
#endif
