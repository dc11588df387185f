// Weights that others wrote: one safetensors file, or several with an index.
#pragma once

#include <string>

#include "translate.hpp"

namespace convert {

/// All tensors of a file, of the files that an index (NAME.safetensors.index.json) names, or of the one or the other in a
/// folder. Throws DataError with path and reason; each tensor has to be in the file that the index says, and no other.
Tensors read_weights(const std::string& path);

/// The folder that a path of read_weights() is in.
std::string folder_of(const std::string& path);

}  // namespace convert
