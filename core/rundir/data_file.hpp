// What tells the data of one rank from that of another. Torch-free.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/plugins/registry.hpp"

namespace trainyard::report {

/// Names of facts and their values, in the order in which a difference is told.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// Facts of each file and folder that options of a plugin name, and those of plugins among its options: the name of the
/// option, as in "of[0].path", with size and SHA-256. A folder stands for all files in it, whose names and sizes the
/// SHA-256 covers, too. Of more than 64 MiB, which would take long to read, the SHA-256 is over 64 pieces of 1 MiB that
/// are spread evenly from the first byte to the last. Options named in `kept` are left out. Throws DataError.
Facts file_identities(const std::vector<OptionSpec>& specs, const Table& options,
                      const plugins::Registry& registry, const std::vector<std::string>& kept,
                      const std::string& prefix = "");

/// The first fact of which two ranks have other values, with both; a rank may lack it. Empty: there is none. `other`
/// says which rank has `there`. Both are Facts as JSON.
std::string difference(const std::string& here, const std::string& there, const std::string& other);

}  // namespace trainyard::report
