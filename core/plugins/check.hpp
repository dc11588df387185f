// What must hold of a manifest before it is sealed.
#pragma once

#include <string>
#include <vector>

#include <trainyard/manifest_data.hpp>

namespace trainyard::plugins {

/// Everything that is wrong, one sentence each, which names the option or hook: names, versions, options
/// whose default breaks their own rules, hooks that write what their event does not allow.
std::vector<std::string> problems(const ManifestData& manifest);

}  // namespace trainyard::plugins
