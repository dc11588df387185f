// Reads and writes RUN/data.json, which holds what the dataset learned from its training split (learns.hpp).
#pragma once

#include <optional>
#include <string>

#include <trainyard/value.hpp>

namespace trainyard::report {

struct Learned {
  std::string type;  ///< name of the dataset plugin
  Table values;
};

/// Returns the text of the file. Throws DataError for a text that is no UTF-8.
std::string text_of(const Learned& learned);

/// Writes the file whole or not at all; it is on the disk on return. Throws DataError.
void write_learned(const std::string& folder, const Learned& learned);

/// Returns what the run that `path` lies in has learned; nothing where it has no such file. `path` is the
/// run's folder, a checkpoint, or a file of weights. Throws DataError where the file is damaged.
std::optional<Learned> learned_beside(const std::string& path);

}  // namespace trainyard::report
