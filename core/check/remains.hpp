// Reads the results of a run that must not depend on when and how often it was killed. Torch-free.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace trainyard::check {

/// Facts by name, in order, without times.
using Remains = std::map<std::string, std::vector<std::string>>;

/// Returns counts, digests and last metrics of the result, and what each plugin saved in the newest
/// checkpoint, if there is one. Throws where there is no result.
Remains remains_of(const std::string& run_folder);

/// Describes the first difference; empty where there is none.
std::string difference(const Remains& found, const Remains& expected);

/// Returns whether a value of a record, or of the host's own state, is a time.
bool is_time(std::string_view name);

}  // namespace trainyard::check
