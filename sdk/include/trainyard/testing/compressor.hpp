// What has to hold of any compressor, tried with ranks that are threads: on each, an object of it sums the gradients of
// parameters that it takes, over a few steps of a tiny training.
#pragma once

#include <string>

#include <trainyard/value.hpp>

namespace trainyard::testing {

/// Says what is wrong with the sums; empty: they are the same on all ranks, to the bit, finite, and of the direction of
/// the true ones. Throws what the plugin throws, and ConfigError for options that do not fit.
std::string wrong_sums(const std::string& file, const Table& options = {}, int ranks = 2);

/// Says what is wrong with what it saves and takes; empty: ranks that go on from what others saved sum to the same bits
/// as those; with a part of the state missing, and on one rank more, they refuse it with an error or go on.
std::string wrong_states(const std::string& file, const Table& options = {}, int ranks = 2);

}  // namespace trainyard::testing
