// Finds the plugin that the table of a slot names by its `type`.
#pragma once

#include <string>
#include <vector>

#include "core/plugins/registry.hpp"
#include "core/runfile/findings.hpp"
#include "core/runfile/schema.hpp"

namespace trainyard::config {

/// Returns the table of the run file in which a name is a key of the host, so that no plugin of that section
/// may have an option of that name; null: none.
const Section* reserved_in(const Section& section, const std::string& option);
/// Returns messages about such options, other than `type` and `id`, for the build of a plugin.
std::vector<std::string> reserved_options(const ManifestData& manifest);

struct Filling {
  Value written;     ///< `type` as it stands in the file
  std::string type;  ///< empty if absent, or if it is no string
  const plugins::PluginFile* plugin = nullptr;
};

/// `default_type` is used if the table has no `type`; empty: it must have one. Returns no plugin, with
/// findings, if the type is missing or wrong, in several files, or has an option called as a host's key.
Filling find_plugin(const Section& section, const Table& table, const Origin& at,
                    const std::string& default_type, const plugins::Registry& registry, Findings& findings);

}  // namespace trainyard::config
