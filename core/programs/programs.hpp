// The verbs that are programs of their own, and parts of one of them.
#pragma once

#include "core/cli/verb.hpp"

namespace trainyard::cli {

void add_bench(Arguments verb, CommandLine& line);
void add_ckpt(Arguments verb, CommandLine& line);
void add_completion(Arguments verb, CommandLine& line);
void add_config(Arguments verb, CommandLine& line);
void add_ctl(Arguments verb, CommandLine& line);
void add_monitor(Arguments verb, CommandLine& line);
void add_plugins(Arguments verb, CommandLine& line);
void add_report(Arguments verb, CommandLine& line);
void add_rules(Arguments verb, CommandLine& line);
void add_runs(Arguments verb, CommandLine& line);
void add_schedule(Arguments verb, CommandLine& line);
void add_study(Arguments verb, CommandLine& line);

void add_runs_compare(Arguments runs, CommandLine& line);
void add_plugins_check(Arguments plugins, CommandLine& line);
void add_plugins_new(Arguments plugins, CommandLine& line);
void add_plugins_dev(Arguments plugins, CommandLine& line);
/// Returns the kinds that `plugins list` and `plugins new` take.
std::vector<std::string> kinds_of_plugins();

}  // namespace trainyard::cli
