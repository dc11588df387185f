// Decides which keys may differ between a run and the file with which it is resumed.
#pragma once

#include <string>
#include <vector>

#include "core/runfile/findings.hpp"
#include "core/runfile/keys.hpp"
#include "core/runfile/print.hpp"

namespace trainyard::config {

/// Returns the change class of a key ("optimizer.lr"): its own, else that of its section.
ChangeClass classify(const std::string& key);

/// Adds refused changes to `findings` and returns those to be journalled as lines: "optimizer.lr 0.1 -> 0.2".
/// `since` is the step that the run has reached.
std::vector<std::string> check_changes(const std::vector<Difference>& differences, std::int64_t since,
                                       Findings& findings);

/// Returns `root` with the new values of the differences, taken from `changed`.
Table with_changes(Table root, const std::vector<Difference>& differences, const Table& changed);

}  // namespace trainyard::config
