// Checks a manifest before it is sealed.
#pragma once

#include <string>
#include <vector>

#include <trainyard/manifest_data.hpp>

namespace trainyard::plugins {

/// Returns everything that is wrong, one sentence each, naming the option or hook: bad names or versions,
/// defaults that break the rules of their options, hooks that write what their event does not allow.
std::vector<std::string> problems(const ManifestData& manifest);

}  // namespace trainyard::plugins
