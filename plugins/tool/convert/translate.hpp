// Tensors of a file under our names, and ours under the file's: each once.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <trainyard/named_tensor.hpp>
#include <trainyard/value.hpp>

#include "map.hpp"

namespace convert {

using Tensors = std::vector<trainyard::NamedTensor>;

struct Translated {
  Tensors tensors;
  std::vector<std::string> ignored;  ///< of the file: names that the map passes over, and twins
};

/// Tensors for `ours`, which gives names, shapes and types, of those in a file. Throws ConfigError with everything that is
/// missing, left over or of a wrong shape; `source` says where the tensors come from.
Translated to_ours(const Map& map, const Tensors& file, const Tensors& ours, const std::string& source);

/// The tensors of a file of that form. `model`: the options by which rows of joined tensors divide.
Tensors to_file(const Map& map, const Tensors& ours, const trainyard::Table& model);

}  // namespace convert
