// trainyard plan: what a run will do, before it does.
#include <cstdio>

#include "core/cli/engine_library.hpp"
#include "core/cli/order_of_run.hpp"
#include "core/cli/verbs/verb.hpp"

namespace trainyard::cli {
namespace {

int plan(RunFileOptions& options) {
  return with_run(options, [](const RunFile& run) {
    std::printf("Order of hooks\n%s", order_of(run.config, run.registry).text().c_str());
    std::fflush(stdout);
    return engine().plan(run.config, run.registry);
  });
}

}  // namespace

void add_plan(Arguments command, CommandLine& line) {
  Arguments verb =
      command.verb("plan", "show hook order, steps, batch arithmetic and memory before training");
  const auto options = std::make_shared<RunFileOptions>();
  add_run_file(verb, *options);
  when_chosen(verb, line, options, plan);
}

}  // namespace trainyard::cli
