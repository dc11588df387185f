// Fills in ${vars.NAME}, ${run.name} and ${run.data} in the strings of a run file; runs no other code.
#pragma once

#include <string>

#include <trainyard/value.hpp>
#include "core/runfile/findings.hpp"

namespace trainyard::config {

/// Values of the names where the file does not give them.
struct Scope {
  std::string run_name;
  std::string data_root;
};

/// Fills every string of `root`, removes `vars`, and makes run.data absolute. A string that is just one
/// reference becomes the value itself, with its type; "$${" becomes "${". References may build on each other,
/// but not in a circle.
void interpolate(Table& root, const Scope& scope, Findings& findings);

}  // namespace trainyard::config
