// trainyard model show: what a model is made of.
#include "core/cli/engine_library.hpp"
#include "core/cli/verbs/verb.hpp"

namespace trainyard::cli {

namespace {

int show(RunFileOptions& options) {
  return with_run(options, [](const RunFile& run) { return engine().model_show(run.config, run.registry); });
}

}  // namespace

void add_model(CLI::App& app, CommandLine& line) {
  CLI::App& verb = *app.add_subcommand("model", "look at models");
  verb.require_subcommand(1);
  CLI::App& shown = *verb.add_subcommand("show", "layers, shapes, parameters, multiply-adds, dropout sites");
  const auto options = std::make_shared<RunFileOptions>();
  add_run_file(shown, *options);
  when_chosen(shown, line, options, show);
}

}  // namespace trainyard::cli
