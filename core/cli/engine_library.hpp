// Finds and opens the engine, which brings LibTorch, when a verb needs it.
#pragma once

#include <string>

#include "core/engine/check/check.hpp"
#include "core/engine/engine.hpp"

namespace trainyard::cli {

/// Returns the folder of this executable's installation, which holds bin/ and lib/.
std::string home();

/// Opens the engine. Throws PluginError where libtrainyard_engine.so is absent or of another build.
const train::Engine& engine();

/// Opens the engine that checks plugins, under the same conditions.
const check::Checker& checker();

}  // namespace trainyard::cli
