// The verbs that `trainyard` has itself, as a training needs them or they show what one will do.
#pragma once

#include "core/cli/verb.hpp"

namespace trainyard::cli {

void add_train(Arguments verb, CommandLine& line);
void add_resume(Arguments verb, CommandLine& line);
void add_eval(Arguments verb, CommandLine& line);
void add_validate(Arguments verb, CommandLine& line);
void add_plan(Arguments verb, CommandLine& line);
void add_model(Arguments verb, CommandLine& line);
void add_doctor(Arguments verb, CommandLine& line);
void add_tools(Arguments verb, CommandLine& line);
/// Adds a verb for each plugin of kind `tool` that the words may mean.
void add_tools_of_plugins(Arguments command, CommandLine& line);

}  // namespace trainyard::cli
