// The trainyard command. A thin front: it checks everything that can be checked without LibTorch, and hands
// the rest to the engine.
#include <cstdio>
#include <iostream>

#include <trainyard/error.hpp>
#include <trainyard/version.hpp>

#include "core/cli/unknown_verb.hpp"
#include "core/cli/verbs/verb.hpp"

namespace trainyard::cli {
namespace {

/// As --help lists them.
constexpr void (*verbs[])(CLI::App&, CommandLine&) = {
    add_train, add_resume,   add_eval,  add_validate, add_plan,   add_config, add_plugins, add_ckpt,
    add_model, add_schedule, add_rules, add_bench,    add_doctor, add_ctl,    add_monitor, add_runs};

int run_command_line(int argc, char** argv) {
  CommandLine line{.argc = argc, .argv = argv, .chosen = {}};
  CLI::App app("Trains LibTorch models from run files; every strategy of a run is a plugin.", "trainyard");
  app.require_subcommand(1);
  app.get_formatter()->column_width(36);
  app.set_version_flag("--version", std::string("trainyard ") + TRAINYARD_VERSION + ", SDK " +
                                        TRAINYARD_SDK_VERSION + ", LibTorch " + TRAINYARD_LIBTORCH_VERSION);
  for (const auto add : verbs) add(app, line);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // help, version
    if (const std::optional<std::string> message = unknown_verb(app))
      std::fprintf(stderr, "%s\n", message->c_str());
    else
      app.exit(error, std::cout, std::cerr);
    return static_cast<int>(ExitCode::config);
  }
  return line.chosen();
}

}  // namespace
}  // namespace trainyard::cli

int main(int argc, char** argv) {
  try {
    return trainyard::cli::run_command_line(argc, argv);
  } catch (const trainyard::Error& error) {
    std::fprintf(stderr, "trainyard: %s\n", error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "trainyard: internal error: %s\n", error.what());
    return static_cast<int>(trainyard::ExitCode::internal);
  }
}
