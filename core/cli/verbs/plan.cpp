// trainyard plan: shows what a run will do before it starts.
#include <cstdio>
#include <string>

#include "core/cli/engine_library.hpp"
#include "core/cli/order_of_run.hpp"
#include "core/cli/verbs/verbs.hpp"

namespace trainyard::cli {
namespace {

/// Returns a line such as "executor compiled: does all it can only with ...", as validation warns of it.
std::string executor_line(const RunFile& run) {
  std::string text;
  for (const config::Finding& each : run.findings.list())
    if (each.code == "E324" && each.message.starts_with("executor: "))
      text += (text.empty() ? "" : "; it ") + each.message.substr(each.message.find("\" ") + 2);
  return "executor " + run.config.at("executor").type + ": " + (text.empty() ? "does all it can" : text);
}

int plan(RunFileOptions& options) {
  return with_run(options, [](const RunFile& run) {
    std::printf("%s\nOrder of hooks\n%s", executor_line(run).c_str(),
                order_of_run(run.config, run.registry).c_str());
    std::fflush(stdout);
    return engine().plan(run.config, run.registry);
  });
}

}  // namespace

void add_plan(Arguments verb, CommandLine& line) {
  const auto options = std::make_shared<RunFileOptions>();
  add_run_file(verb, *options);
  when_chosen(verb, line, options, plan);
}

}  // namespace trainyard::cli
