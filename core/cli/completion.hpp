// Completes command lines for shells: verbs and options from the parser, names of runs, and keys and plugins
// from the run file and the manifests.
#pragma once

#include <string>
#include <vector>

#include "core/cli/arguments.hpp"

namespace trainyard::cli {

/// Returns whole words for the last word, which is incomplete, sorted. More may follow '=', '.' and '/'.
std::vector<std::string> completions(const Command& command, const std::vector<std::string>& words);

}  // namespace trainyard::cli
