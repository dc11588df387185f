// Runs the programs of the front: `trainyard`, and `trainyard-NAME`, each of which is a verb. As with git,
// `trainyard` looks for the program of a verb that it does not have itself beside it, and on the PATH.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/cli/verb.hpp"

namespace trainyard::cli {

/// Replaces this process by the program at `path`. Throws ConfigError where it cannot be started.
[[noreturn]] void become(const std::string& path, std::vector<std::string> words);

/// Returns the path of `trainyard-VERB`, or nothing where there is none.
std::optional<std::string> program_of(const std::string& verb);

/// Replaces this process by the program of a verb of the host. Throws ConfigError where it is missing.
[[noreturn]] void become_verb(const std::string& verb, const std::vector<std::string>& words);

/// Returns the exit code of `action`, or that of the error that it throws, which is printed.
int exit_code_of(const std::function<int()>& action);

/// Parses `words` with the verbs that `add` adds and returns the exit code of the verb that was chosen. Where
/// the first word is "__complete", by which a shell calls, it prints how the last word may go on.
int run_front(std::vector<std::string> words, const std::function<void(Command&, CommandLine&)>& add);

/// Runs the program of the verb `name`, which is the first of its words.
int run_program(const char* name, void (*add)(Arguments, CommandLine&), int argc, char** argv);

}  // namespace trainyard::cli
