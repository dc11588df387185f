// Writes the JSON Schema (draft 7) of run files, with which editors complete and check them.
#pragma once

#include <string>

#include "core/plugins/registry.hpp"

namespace trainyard::config {

/// Returns the schema for the plugins of the registry: any other `type` is an error. It checks less than
/// `validate`, which also reads the files that a file extends: no key is required in a file with `extends`.
std::string json_schema(const plugins::Registry& registry);

}  // namespace trainyard::config
