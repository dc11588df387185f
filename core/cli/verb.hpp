// The tools with which verbs are added to the command line. A file of core/cli/verbs or core/programs has a verb: it adds the
// verb's options to the parser, and the action that runs once they are parsed.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/cli/arguments.hpp"
#include "core/cli/columns.hpp"
#include "core/cli/run_file.hpp"

namespace trainyard::cli {

/// The command line, and the action chosen from it. Outlives the parser.
struct CommandLine {
  std::vector<std::string> words;  ///< those behind the name of the program
  bool completes = false;          ///< a shell asks how the last word may go on
  std::function<int()> chosen;     ///< runs the parsed verb and returns the exit code
};

/// Sets the action of a verb. `given` are its options, which the parser fills and the action reads.
template <class Given>
void when_chosen(Arguments verb, CommandLine& line, std::shared_ptr<Given> given, int (*action)(Given&)) {
  verb.when_chosen([&line, given, action] { line.chosen = [given, action] { return action(*given); }; });
}

Argument add_run_file(Arguments verb, RunFileOptions& options);
void add_set(Arguments verb, RunFileOptions& options, const std::string& example = "optimizer.lr=0.1");
void add_plugin_folders(Arguments verb, RunFileOptions& options);
void add_ranks(Arguments verb, RunFileOptions& options);
void add_format(Arguments verb, Format& format);

/// Returns the exit code of `action` for the run file, or that of an invalid one.
template <class Action>
int with_run(const RunFileOptions& options, Action&& action) {
  const std::optional<RunFile> run = read_run_file(options);
  if (!run) return static_cast<int>(ExitCode::config);
  return action(*run);
}

}  // namespace trainyard::cli
