// trainyard rules check: applies rules to the recording of a run.
#include "core/cli/engine_library.hpp"
#include "core/cli/run_state.hpp"
#include "core/programs/programs.hpp"

namespace trainyard::cli {
namespace {

struct RulesArguments {
  RunFileOptions run_file;
  Format format = Format::text;
  std::string run, config;
};

int check(RulesArguments& given) {
  const std::string directory = find_run(given.run);
  given.run_file.trains = false;
  given.run_file.files = {given.config.empty() ? directory + "/config.toml" : given.config};
  return with_run(given.run_file, [&](const RunFile& run) {
    return engine().check_rules(run.config, run.registry, directory + "/trial", given.format == Format::json);
  });
}

}  // namespace

void add_rules(Arguments verb, CommandLine& line) {
  Arguments checked = verb.verb("check", "show rules what was recorded of a run, and print what fires");
  checked.footer("Exit codes: 0 nothing fires, 5 something does, 7 nothing does, but a rule could not look.");
  const auto given = std::make_shared<RulesArguments>();
  checked.add("run", given->run, "the run's directory, or a name below runs/").required().offers("run");
  checked.add("--config", given->config, "run file whose [[rules]] look, in place of the run's own")
      .offers("file");
  add_set(checked, given->run_file, "rules.0.threshold=1e-6");
  add_plugin_folders(checked, given->run_file);
  add_format(checked, given->format);
  when_chosen(checked, line, given, check);
}

}  // namespace trainyard::cli
