// Reads checkpoints: every byte is checked against its digest before it is used.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <trainyard/formats/safetensors.hpp>
#include <trainyard/state.hpp>

namespace trainyard::checkpoint {

struct Loaded {
  std::string path;
  std::int64_t step = 0;
  /// As given to Checkpointer::take, tensors on the CPU; tables that the ranks wrote as shards hold only this
  /// rank's rows.
  std::vector<State> states;

  /// Returns the state of an owner, or null.
  const State* find(std::string_view owner) const;
};

/// Throws DataError, which names the damaged file and tensor.
Loaded load(const std::string& checkpoint);

/// Returns the newest checkpoint of a folder that is whole, including what other ranks read of it; nothing if
/// there is none. `damaged` is called for each one that is passed over.
std::optional<Loaded> load_newest(
    const std::string& folder,
    const std::function<void(const std::string& checkpoint, const std::string& why)>& damaged);

/// Returns a model's parameters and buffers, from a safetensors file or what weights_in() finds in a folder.
/// Throws DataError.
std::vector<NamedTensor> load_weights(const std::string& path, const RowsWanted& wanted = all_rows);

}  // namespace trainyard::checkpoint
