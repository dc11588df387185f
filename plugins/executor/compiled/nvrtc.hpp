// NVRTC, the compiler for CUDA C++ at run time: opened where a text is to be compiled, so that nothing else needs it.
#pragma once

#include <string>
#include <vector>

namespace compiled {

/// The binary of a text for a device of compute capability `capability`: 90 for 9.0. Needs no device. Throws
/// ConfigError where there is no NVRTC, PluginError with its log where it refuses the text.
std::vector<char> compile_for(int capability, const std::string& text);

}  // namespace compiled
