// Registers verbs of the command line: a file of this folder adds a verb to the parser, with its options and
// the action that runs once they are parsed; the table in core/main.cpp names it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/cli/arguments.hpp"
#include "core/cli/plugins_verbs.hpp"
#include "core/cli/run_file.hpp"

namespace trainyard::cli {

/// The command line, and the action chosen from it. Outlives the parser.
struct CommandLine {
  int argc = 0;
  char** argv = nullptr;
  std::function<int()> chosen;  ///< runs the parsed verb and returns the exit code
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

void add_train(Arguments command, CommandLine& line);
void add_resume(Arguments command, CommandLine& line);
void add_eval(Arguments command, CommandLine& line);
void add_validate(Arguments command, CommandLine& line);
void add_plan(Arguments command, CommandLine& line);
void add_config(Arguments command, CommandLine& line);
void add_plugins(Arguments command, CommandLine& line);
void add_plugins_check(Arguments plugins, CommandLine& line);
void add_plugins_new(Arguments plugins, CommandLine& line);
void add_plugins_dev(Arguments plugins, CommandLine& line);
void add_ckpt(Arguments command, CommandLine& line);
void add_model(Arguments command, CommandLine& line);
void add_schedule(Arguments command, CommandLine& line);
void add_rules(Arguments command, CommandLine& line);
void add_bench(Arguments command, CommandLine& line);
void add_doctor(Arguments command, CommandLine& line);
void add_ctl(Arguments command, CommandLine& line);
void add_monitor(Arguments command, CommandLine& line);
void add_runs(Arguments command, CommandLine& line);
void add_completion(Arguments command, CommandLine& line);
void add_report(Arguments command, CommandLine& line);
void add_tools(Arguments command, CommandLine& line);
void add_study(Arguments command, CommandLine& line);

}  // namespace trainyard::cli
