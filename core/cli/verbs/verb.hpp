// How a verb of the command line registers: a file of this folder adds it to the parser, with its options and
// with what it does once they were read; the table in core/main.cpp names it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "core/cli/plugins_verbs.hpp"
#include "core/cli/run_file.hpp"

namespace trainyard::cli {

/// What was typed, and what comes of it. Outlives the parser.
struct CommandLine {
  int argc = 0;
  char** argv = nullptr;
  std::function<int()> chosen;  ///< does the verb that was parsed, and gives the exit code
};

/// `given`: the verb's options, which the parser fills and the action reads.
template <class Given>
void when_chosen(CLI::App& verb, CommandLine& line, std::shared_ptr<Given> given, int (*action)(Given&)) {
  verb.callback([&line, given, action] { line.chosen = [given, action] { return action(*given); }; });
}

void add_run_file(CLI::App& verb, RunFileOptions& options);
void add_set(CLI::App& verb, RunFileOptions& options, const std::string& example = "optimizer.lr=0.1");
void add_plugin_folders(CLI::App& verb, RunFileOptions& options);
void add_format(CLI::App& verb, Format& format);

/// The exit code of `action` for the run file, or of one that is not valid.
template <class Action>
int with_run(const RunFileOptions& options, Action&& action) {
  const std::optional<RunFile> run = read_run_file(options);
  if (!run) return static_cast<int>(ExitCode::config);
  return action(*run);
}

void add_train(CLI::App& app, CommandLine& line);
void add_resume(CLI::App& app, CommandLine& line);
void add_eval(CLI::App& app, CommandLine& line);
void add_validate(CLI::App& app, CommandLine& line);
void add_plan(CLI::App& app, CommandLine& line);
void add_config(CLI::App& app, CommandLine& line);
void add_plugins(CLI::App& app, CommandLine& line);
void add_ckpt(CLI::App& app, CommandLine& line);
void add_model(CLI::App& app, CommandLine& line);
void add_schedule(CLI::App& app, CommandLine& line);
void add_rules(CLI::App& app, CommandLine& line);
void add_bench(CLI::App& app, CommandLine& line);
void add_doctor(CLI::App& app, CommandLine& line);
void add_ctl(CLI::App& app, CommandLine& line);
void add_monitor(CLI::App& app, CommandLine& line);
void add_runs(CLI::App& app, CommandLine& line);

}  // namespace trainyard::cli
