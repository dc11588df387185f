// What a pruning leaves on the disk: weights, and a file to lay over the run file that trains them on.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <trainyard/named_tensor.hpp>
#include <trainyard/value.hpp>

#include "../../transform/filters/kept_file.hpp"

namespace pruning {

using namespace trainyard;

/// Writes model.safetensors, run.toml and, for filters that are cut, kept.json to a folder, and returns their paths. `run` is
/// the run file. Throws DataError.
std::vector<std::string> write(const std::string& folder, const std::vector<NamedTensor>& weights,
                               const std::optional<filters::Kept>& kept, const Table& run);

}  // namespace pruning
