// The plugin that the table of a slot names with its `type`.
#pragma once

#include <string>
#include <vector>

#include "core/plugins/registry.hpp"
#include "core/runfile/findings.hpp"
#include "core/runfile/schema.hpp"

namespace trainyard::config {

/// The table of the run file in which a name is a key of the host, so that a plugin of that section cannot have
/// an option of it; null: none.
const Section* reserved_in(const Section& section, const std::string& option);
/// What is to be said of such options, beside `type` and `id`; for the build of a plugin.
std::vector<std::string> reserved_options(const ManifestData& manifest);

struct Filling {
  Value written;     ///< `type` as it stands in the file
  std::string type;  ///< empty where there is none, or it is no name
  const plugins::PluginFile* plugin = nullptr;
};

/// `default_type`: where the table has no `type`; empty: it needs one. No plugin where the type is missing or
/// wrong, more than one file provides it, or one of its options has the name of a host's key; with findings.
Filling find_plugin(const Section& section, const Table& table, const Origin& at,
                    const std::string& default_type, const plugins::Registry& registry, Findings& findings);

}  // namespace trainyard::config
