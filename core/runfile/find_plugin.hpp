// The plugin that the table of a slot names with its `type`.
#pragma once

#include <string>

#include "core/plugins/registry.hpp"
#include "core/runfile/findings.hpp"
#include "core/runfile/schema.hpp"

namespace trainyard::config {

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
