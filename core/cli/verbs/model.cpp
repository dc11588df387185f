// trainyard model show: lists the layers of a model.
#include "core/cli/engine_library.hpp"
#include "core/cli/verbs/verbs.hpp"

namespace trainyard::cli {
namespace {

int show(RunFileOptions& options) {
  options.trains = false;
  return with_run(options, [](const RunFile& run) { return engine().model_show(run.config, run.registry); });
}

}  // namespace

void add_model(Arguments verb, CommandLine& line) {
  Arguments shown = verb.verb("show", "layers, shapes, parameters, multiply-adds, dropout sites");
  const auto options = std::make_shared<RunFileOptions>();
  add_run_file(shown, *options);
  when_chosen(shown, line, options, show);
}

}  // namespace trainyard::cli
