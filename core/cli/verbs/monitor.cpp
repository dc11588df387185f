// trainyard monitor: follows a run in a terminal.
#include <iostream>

#include "core/cli/monitor_verb.hpp"
#include "core/cli/verbs/verb.hpp"

namespace trainyard::cli {

namespace {

struct Given {
  std::string run;
  bool once = false;
};

int follow(Given& given) {
  return monitor(given.run, given.once, std::cerr);
}

}  // namespace

void add_monitor(Arguments command, CommandLine& line) {
  Arguments verb = command.verb("monitor", "follow a run in a terminal until it ends; q leaves");
  const auto given = std::make_shared<Given>();
  verb.add("run", given->run, "directory of the run, or its name below runs/").required().offers("run");
  verb.flag("--once", given->once, "print it once, as where the output is no terminal");
  when_chosen(verb, line, given, follow);
}

}  // namespace trainyard::cli
