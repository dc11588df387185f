// Parts of a manifest as text for a person.
#pragma once

#include <string>

#include "core/rundir/manifest.hpp"

namespace trainyard::cli {

/// The shortest that reads back as the same number.
std::string text_of(double value);
std::string text_of(const checkpoint::Scalar& value);
/// "F32 [4, 3]"
std::string text_of(const checkpoint::TensorEntry& tensor);

}  // namespace trainyard::cli
