// What the host leaves of a run, which must not depend on when and how often it was killed. Torch-free.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace trainyard::check {

/// By name, in order, without times.
using Remains = std::map<std::string, std::vector<std::string>>;

/// Counts, digests and last metrics of the result; of the newest checkpoint, if there is one, what each plugin saved.
/// Throws where there is no result.
Remains remains_of(const std::string& run_folder);

/// The first that differs, in words; empty where nothing does.
std::string difference(const Remains& found, const Remains& expected);

/// Of a value of a record, or of the host's own state.
bool is_time(std::string_view name);

}  // namespace trainyard::check
