// The trainyard command. A thin front: it checks everything that can be checked without LibTorch, and passes
// the rest to the engine.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <iostream>
#include <string_view>
#include <vector>

#include <trainyard/error.hpp>
#include <trainyard/version.hpp>

#include "core/cli/completion.hpp"
#include "core/cli/verbs/verb.hpp"

namespace trainyard::cli {
namespace {

/// The verbs, in the order of --help.
constexpr void (*verbs[])(Arguments, CommandLine&) = {
    add_train,   add_resume, add_eval,     add_validate,   add_plan,  add_config, add_plugins,
    add_ckpt,    add_model,  add_schedule, add_rules,      add_bench, add_doctor, add_ctl,
    add_monitor, add_runs,   add_report,   add_completion, add_tools, add_study};

/// Turns "help ckpt ls" into "ckpt ls --help".
std::vector<char*> asked(int argc, char** argv) {
  static char option[] = "--help";
  std::vector<char*> words(argv, argv + argc);
  if (argc < 2 || std::string_view(argv[1]) != "help") return words;
  words.erase(words.begin() + 1);
  words.push_back(option);
  return words;
}

int run_command_line(int given, char** words) {
  std::vector<char*> all = asked(given, words);
  const bool completed = given > 1 && std::string_view(words[1]) == "__complete";  // called by a shell
  if (completed) all.erase(all.begin() + 1);
  const int argc = static_cast<int>(all.size());
  char** const argv = all.data();
  CommandLine line{.argc = argc, .argv = argv, .chosen = {}};
  Command command("trainyard", "Trains LibTorch models from run files; every strategy of a run is a plugin.",
                  std::string("trainyard ") + TRAINYARD_VERSION + ", SDK " + TRAINYARD_SDK_VERSION +
                      ", LibTorch " + TRAINYARD_LIBTORCH_VERSION);
  for (const auto add : verbs) add(command.arguments(), line);
  command.arguments().footer(
      "`trainyard help VERB` says what a verb takes; tools, which are verbs of plugins, are listed by "
      "`trainyard tools`.");
  if (completed) {
    for (const std::string& word : completions(command, {all.begin() + 1, all.end()}))
      std::cout << word << '\n';
    return 0;
  }
  if (const std::optional<int> ended = command.parse(argc, argv, std::cout, std::cerr)) return *ended;
  return line.chosen();
}

int code_of(int argc, char** argv) {
  try {
    return run_command_line(argc, argv);
  } catch (const Error& error) {
    std::fprintf(stderr, "trainyard: %s\n", error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "trainyard: internal error: %s\n", error.what());
    return static_cast<int>(ExitCode::internal);
  }
}

}  // namespace
}  // namespace trainyard::cli

int main(int argc, char** argv) {
  std::signal(SIGXFSZ,
              SIG_IGN);  // past `ulimit -f` a write fails, with its reason, instead of ending the process
  const int code = trainyard::cli::code_of(argc, argv);
#ifndef __SANITIZE_ADDRESS__  // it checks for leaks at the end
  // LibTorch would take a tenth of a second to destroy its tables of operators, which are no longer needed.
  std::cout.flush();
  std::fflush(nullptr);
  ::_exit(code);
#else
  return code;
#endif
}
