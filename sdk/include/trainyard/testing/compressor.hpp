// Checks that have to hold for any compressor. Ranks are threads: on each, an object of it sums the gradients
// of the parameters that it takes, over a few steps of a tiny training.
#pragma once

#include <string>

#include <trainyard/value.hpp>

#include <trainyard/testing/plugin.hpp>

namespace trainyard::testing {

/// Returns what is wrong with the sums; empty: they are the same on all ranks, to the bit, finite, and of the
/// direction of the true ones. Throws what the plugin throws, and ConfigError for options that do not fit.
std::string wrong_sums(const BuiltPlugin& plugin, const Table& options = {}, int ranks = 2);

/// Returns what is wrong with its saved states; empty: ranks that go on from the states of others sum to the
/// same bits; with a part of the state missing, and on one rank more, they refuse it with an error or go on.
std::string wrong_states(const BuiltPlugin& plugin, const Table& options = {}, int ranks = 2);

}  // namespace trainyard::testing
