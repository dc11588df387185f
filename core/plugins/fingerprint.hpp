// Compares the builds of a plugin and its host.
#pragma once

#include <string>

#include <trainyard/plugin.hpp>

#include "core/plugins/plugin_file.hpp"

namespace trainyard::plugins {

BuildFacts build_facts(const Fingerprint& fingerprint);

/// Returns the build facts of this executable.
const BuildFacts& host_facts();

/// Returns each field that differs from the host's, with both values and how to mend it; empty if none does.
std::string mismatch(const BuildFacts& plugin);

}  // namespace trainyard::plugins
