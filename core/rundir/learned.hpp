// RUN/data.json: what the dataset of a run has learned from the training split (learns.hpp of the SDK).
#pragma once

#include <optional>
#include <string>

#include <trainyard/value.hpp>

namespace trainyard::report {

struct Learned {
  std::string type;  ///< the plugin
  Table values;
};

/// The text of the file. Throws DataError for a text that is no UTF-8.
std::string text_of(const Learned& learned);

/// Whole or not at all, on the disk when this returns. Throws DataError.
void write_learned(const std::string& folder, const Learned& learned);

/// What the run has that a path lies in: its folder, a checkpoint, a file of weights. Nothing where it has none.
/// Throws DataError where it is damaged.
std::optional<Learned> learned_beside(const std::string& path);

}  // namespace trainyard::report
