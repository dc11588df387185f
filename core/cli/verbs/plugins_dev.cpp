// trainyard plugins dev: builds and checks what is saved in a plugin's folder, and swaps it into a live run.
#include <iostream>

#include "core/cli/plugins_dev.hpp"
#include "core/cli/verbs/verb.hpp"

namespace trainyard::cli {
namespace {

int develop(DevOptions& given) {
  return plugins_dev(given, std::cout);
}

}  // namespace

void add_plugins_dev(Arguments plugins, CommandLine& line) {
  const auto given = std::make_shared<DevOptions>();
  Arguments verb = plugins.verb("dev", "rebuild a plugin whenever it is saved, and swap it into a live run");
  verb.add("folder", given->folder, "of the plugin, as `plugins new` makes it").required().existing_folder();
  verb.add("--run", given->run, "directory of the run, or its name below runs/").required();
  verb.add("--set", given->assignments, "option of the plugin where the run has another: KEY=VALUE")
      .one_at_a_time();
  verb.add("--timeout", given->timeout, "seconds to wait for a swap (60)").within(0.001, 1e6);
  verb.flag("--once", given->once, "build, check and swap once, then end");
  when_chosen(verb, line, given, develop);
}

}  // namespace trainyard::cli
