// The headers that a plugin was compiled with, against the host's own: one that differs would crash the run at a
// virtual call. A plugin states those that it saw, and no other counts.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "core/plugins/plugin_file.hpp"

namespace trainyard::plugins {

/// Headers of the SDK by name, "graph/graph.hpp", each with a digest of what it says, comments and blanks aside.
using Contract = std::map<std::string, std::string>;
inline constexpr std::size_t contract_digits = 12;

/// Of this executable; the build writes it.
const Contract& host_contract();

/// As a seal states it: NAME=DIGEST in the order of the names, a blank between two.
std::string to_text(const Contract& contract);

/// Each header of a sealed build that `host` has otherwise or not at all, with both digests, and the way to mend
/// it; empty where there is none. Throws PluginError where the build states no text of that form.
std::string mismatch(const BuildFacts& plugin, const Contract& host);

}  // namespace trainyard::plugins
