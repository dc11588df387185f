// The file that says which outputs of layers stay: {"layers": {"conv1": {"of": 16, "kept": [0, 3, 4]}}}.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace filters {

struct KeptOutputs {
  std::int64_t of = 0;             ///< outputs that the layer had
  std::vector<std::int64_t> kept;  ///< those that stay, ascending
};

/// By the name of the layer; those that are not named lose only what goes together with outputs of these.
using Kept = std::map<std::string, KeptOutputs>;

/// Throws DataError that names the file and what is wrong with it.
Kept read_kept(const std::string& path);
void write_kept(const std::string& path, const Kept& kept);

}  // namespace filters
