// Compares the headers that a plugin was compiled with to the host's: one that differs would crash the run at
// a virtual call. A plugin states those that it included, and only these count.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "core/plugins/plugin_file.hpp"

namespace trainyard::plugins {

/// SDK headers by name ("graph/graph.hpp") with digests of their text without comments and blanks.
using Contract = std::map<std::string, std::string>;
inline constexpr std::size_t contract_digits = 12;

/// Returns the contract of this executable, which the build writes.
const Contract& host_contract();

/// Returns the contract as a seal states it: NAME=DIGEST, sorted by name, separated by a blank.
std::string to_text(const Contract& contract);

/// Returns each header of a sealed build, of the host's SDK number, that differs in `host` or is missing there,
/// with both digests and the mend; empty where there is none. Throws PluginError if its text has another form.
std::string mismatch(const BuildFacts& plugin, const Contract& host);

}  // namespace trainyard::plugins
