// Finds and opens the engine, which brings LibTorch with it, when a verb needs it.
#pragma once

#include <string>

#include "core/engine/engine.hpp"

namespace trainyard::cli {

/// The folder of this executable's installation: holds bin/ and lib/.
std::string home();

/// Throws PluginError where libtrainyard_engine.so is absent or of another build.
const train::Engine& engine();

}  // namespace trainyard::cli
