// A fitted pool as a safetensors file: numbers as F64, texts as U8, and a digest of all.
#pragma once

#include <string>
#include <vector>

#include "pool.hpp"

namespace screen {

struct SavedPool {
  Pool pool;
  std::vector<std::string> columns;  ///< names, in the order that the pool knows them in
  Combination combination = Combination::average;
  double contamination = 0.1;
};

/// Throws DataError where it cannot be written.
void save_pool(const std::string& path, SavedPool& saved);
/// `given` are the detectors that the pool was made with beside those of the options, in their order. Throws DataError for
/// a file that is no whole pool, ConfigError where it has others.
SavedPool load_pool(const std::string& path, std::vector<Given> given = {});

}  // namespace screen
