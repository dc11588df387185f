// Tells whether ranks read the same data, by facts of their files. Torch-free.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/plugins/registry.hpp"

namespace trainyard::report {

/// Facts by name, in the order in which a difference is reported.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// Returns facts of each file and folder that options of a plugin name (or those of plugins among them): the
/// option, as in "of[0].path", with size and SHA-256. A folder stands for all its files, whose names and
/// sizes the SHA-256 covers. Over 64 MiB, which would take long to read, the SHA-256 covers 64 pieces of 1
/// MiB, spread evenly from the first byte to the last. Skips options named in `kept`. Throws DataError.
Facts file_identities(const std::vector<OptionSpec>& specs, const Table& options,
                      const plugins::Registry& registry, const std::vector<std::string>& kept,
                      const std::string& prefix = "");

/// Returns the first fact in which two ranks differ (or that one lacks), with both values; empty where there
/// is none. `other` names the rank that has `there`. Both are Facts as JSON.
std::string difference(const std::string& here, const std::string& there, const std::string& other);

}  // namespace trainyard::report
