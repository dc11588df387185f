// What a run leaves that must not depend on when and how often it was killed.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace trainyard::contract {

/// By name, in order, without times: digests, counts and last metrics of the result; what every sink wrote;
/// the trial; the state of every plugin, by its owner, in the newest checkpoint. A file that nobody can read
/// here fails the test.
using Remains = std::map<std::string, std::vector<std::string>>;
Remains remains_of(const std::string& run_folder);

/// The first that differs, in words; empty where nothing does.
std::string difference(const Remains& found, const Remains& expected);

}  // namespace trainyard::contract
