// What a shell completes a command line with: verbs and options of the parser, names of runs, keys and plugins as the
// run file and the manifests have them.
#pragma once

#include <string>
#include <vector>

#include "core/cli/arguments.hpp"

namespace trainyard::cli {

/// For the last of the words, which is begun; whole words, sorted. Those that end with '=', '.' or '/' go on.
std::vector<std::string> completions(const Command& command, const std::vector<std::string>& words);

/// What bash, zsh or fish reads at its start. It asks the executable itself, as `trainyard __complete WORD...`.
std::string completion_script(const std::string& shell);
inline constexpr const char* shells[] = {"bash", "zsh", "fish"};

}  // namespace trainyard::cli
