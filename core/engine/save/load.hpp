// Reads checkpoints: every byte is checked against its digest before anything of it is used.
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
  /// As they were given to Checkpointer::take, tensors on the CPU; of tables that ranks have written in parts, the
  /// rows of this process among its ranks.
  std::vector<State> states;

  /// The state of an owner, or null.
  const State* find(std::string_view owner) const;
};

/// Throws DataError that names the file and the tensor that is damaged.
Loaded load(const std::string& checkpoint);

/// The newest checkpoint of a folder that is whole, what other ranks take of it too; those passed over are told to
/// `damaged`. Nothing where there is none.
std::optional<Loaded> load_newest(
    const std::string& folder,
    const std::function<void(const std::string& checkpoint, const std::string& why)>& damaged);

/// The weights of a model, parameters and buffers, from a safetensors file or what weights_in() finds in a
/// folder. Throws DataError.
std::vector<NamedTensor> load_weights(const std::string& path, const RowsWanted& wanted = all_rows);

}  // namespace trainyard::checkpoint
