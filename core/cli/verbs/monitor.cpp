// trainyard monitor: follows a run in a terminal.
#include <iostream>

#include "core/cli/monitor_verb.hpp"
#include "core/cli/verbs/verb.hpp"

namespace trainyard::cli {
namespace {

struct MonitorArguments {
  std::vector<std::string> runs;
  bool once = false;
};

int follow(MonitorArguments& given) {
  return monitor(given.runs, given.once, std::cerr);
}

}  // namespace

void add_monitor(Arguments command, CommandLine& line) {
  Arguments verb = command.verb("monitor", "follow runs in a terminal until they end; q leaves");
  const auto given = std::make_shared<MonitorArguments>();
  verb.add("run", given->runs,
           "directories of runs, or their names below runs/; several are drawn over each other")
      .required()
      .offers("run");
  verb.flag("--once", given->once, "print it once, as where the output is no terminal");
  when_chosen(verb, line, given, follow);
}

}  // namespace trainyard::cli
