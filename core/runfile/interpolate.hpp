// ${vars.NAME}, ${run.name} and ${run.data} in the strings of a run file; no other code.
#pragma once

#include <string>

#include <trainyard/value.hpp>
#include "core/runfile/findings.hpp"

namespace trainyard::config {

/// What the names stand for where the file does not say.
struct Scope {
  std::string run_name;
  std::string data_root;
};

/// Fills every string of `root`; takes `vars` out; makes run.data absolute. A string that is one reference
/// and nothing else becomes the value itself, with its type; "$${" becomes "${". References may build on each
/// other, not in a circle.
void interpolate(Table& root, const Scope& scope, Findings& findings);

}  // namespace trainyard::config
