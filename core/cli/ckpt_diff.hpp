// trainyard ckpt diff: in what two checkpoints differ. Torch-free.
#pragma once

#include <ostream>
#include <string>

#include <trainyard/error.hpp>

#include "core/cli/plugins_verbs.hpp"

namespace trainyard::cli {

/// Scalars and tensors (by their digests) that differ; paths as of the other verbs of ckpt. `values`: also by
/// how much elements of tensors do, those that differ most, relatively, first; what cannot be compared stands
/// before them. Throws DataError.
ExitCode ckpt_diff(const std::string& a, const std::string& b, bool values, Format format, std::ostream& out);

}  // namespace trainyard::cli
