// The JSON Schema (draft 7) of run files, by which editors complete and check them.
#pragma once

#include <string>

#include "core/plugins/registry.hpp"

namespace trainyard::config {

/// For the plugins of the registry: a `type` that is none of them is an error. It knows less than `validate`, which
/// also sees what a file extends: in a file that has `extends`, nothing is missing.
std::string json_schema(const plugins::Registry& registry);

}  // namespace trainyard::config
