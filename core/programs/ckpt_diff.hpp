// trainyard ckpt diff: reports the differences between two checkpoints. Torch-free.
#pragma once

#include <ostream>
#include <string>

#include <trainyard/error.hpp>

#include "core/cli/columns.hpp"

namespace trainyard::cli {

/// Prints scalars and tensors (by their digests) that differ; paths are those of the other verbs of ckpt.
/// `values` compares elements of tensors, too, and sorts by largest relative difference, after those that
/// cannot be compared. Throws DataError.
ExitCode ckpt_diff(const std::string& a, const std::string& b, bool values, Format format, std::ostream& out);

}  // namespace trainyard::cli
