// Checks that a plugin with state passes: a checkpoint between any two calls.
#pragma once

#include <string>
#include <vector>

#include <trainyard/state.hpp>

#include <trainyard/testing/plugin.hpp>

namespace trainyard::testing {

/// Returns a copy that shares nothing with the plugin that wrote it, like a state from a file.
State copy(const State& state);

/// Returns the names that differ; empty: both are the same, to the bit. Owner and version are not compared.
std::vector<std::string> differences(const State& a, const State& b);

/// Saves `from`, loads that into `into` - a plugin made with the same options and opened the same - and
/// returns where the state that `into` then saves differs: empty where nothing is forgotten.
std::vector<std::string> round_trip(const MadePlugin& from, MadePlugin& into);

/// Returns the names that `load` does not miss: each is left out of a state once, and `into` has to throw
/// PluginError or DataError. Empty where all are missed. `into` is of no use afterwards.
std::vector<std::string> not_missed(const State& state, MadePlugin& into);

}  // namespace trainyard::testing
