// Formats parts of a manifest for people.
#pragma once

#include <string>

#include "core/rundir/manifest.hpp"

namespace trainyard::cli {

/// Returns the shortest text that reads back as the same number.
std::string text_of(double value);
std::string text_of(const checkpoint::Scalar& value);
/// Returns type and shape: "F32 [4, 3]".
std::string text_of(const checkpoint::TensorEntry& tensor);

}  // namespace trainyard::cli
