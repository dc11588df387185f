// What may differ between a run and the file that it is resumed with.
#pragma once

#include <string>
#include <vector>

#include "core/runfile/findings.hpp"
#include "core/runfile/keys.hpp"
#include "core/runfile/print.hpp"

namespace trainyard::config {

/// Of a key ("optimizer.lr"): its own class, else that of its section.
ChangeClass classify(const std::string& key);

/// Refusals go to `findings`; what is to be journalled comes back as lines: "optimizer.lr 0.1 -> 0.2".
/// `since`: the step that the run stands at.
std::vector<std::string> check_changes(const std::vector<Difference>& differences, std::int64_t since,
                                       Findings& findings);

/// `root` with the new values of the differences.
Table with_changes(Table root, const std::vector<Difference>& differences, const Table& changed);

}  // namespace trainyard::config
