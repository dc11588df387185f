// Options of a model that no shape tells: a wrong number of heads has every tensor fit, and computes nonsense.
#pragma once

#include <string>
#include <vector>

#include <trainyard/value.hpp>

#include "map.hpp"

namespace convert {

/// Throws ConfigError where the model is not the map's, or has options with which it computes something else than such
/// files are made for.
void check_options(const Map& map, const trainyard::Table& model);

/// Returns the only map that fits the model. Throws ConfigError where none does, or several do.
Map fitting_map(const trainyard::Table& model);

/// Compares the options with config.json in the folder, if it is there. Returns how many settings it has told; throws
/// ConfigError with each that differs, and DataError where the file cannot be read.
std::int64_t check_settings(const Map& map, const trainyard::Table& model, const std::string& folder);

}  // namespace convert
