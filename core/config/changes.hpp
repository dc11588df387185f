// What may differ between a run and the file that it is resumed with.
#pragma once

#include <string>
#include <vector>

#include "core/config/findings.hpp"
#include "core/config/print.hpp"

namespace trainyard::config {

enum class ChangeClass : std::uint8_t {
  allowed,     ///< changes nothing of the training
  journalled,  ///< the training is another one from here on, which the journal tells
  refused,     ///< the state does not fit any more
};

ChangeClass classify(const std::string& key);

/// Refusals go to `findings`; what is to be journalled comes back as lines: "optimizer.lr 0.1 -> 0.2".
/// `since`: the step that the run stands at.
std::vector<std::string> check_changes(const std::vector<Difference>& differences, std::int64_t since,
                                       Findings& findings);

/// `root` with the new values of the differences.
Table with_changes(Table root, const std::vector<Difference>& differences, const Table& changed);

}  // namespace trainyard::config
