// What a plugin and its host were built with.
#pragma once

#include <string>

#include <trainyard/plugin.hpp>

#include "core/plugins/plugin_file.hpp"

namespace trainyard::plugins {

BuildFacts build_facts(const Fingerprint& fingerprint);

/// Of this executable.
const BuildFacts& host_facts();

/// Each field that differs from the host's with both values and the way to mend it; empty where none does.
std::string mismatch(const BuildFacts& plugin);

}  // namespace trainyard::plugins
