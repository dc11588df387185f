// trainyard validate: everything that is wrong with a run file.
#include <cstdio>

#include "core/cli/verbs/verb.hpp"

namespace trainyard::cli {

namespace {

struct Given {
  RunFileOptions run_file;
  Format format = Format::text;
};

int validate(Given& given) {
  given.run_file.json = given.format == Format::json;
  return with_run(given.run_file, [&](const RunFile& run) {
    if (!given.run_file.json) std::printf("%s: valid\n", run.config.run.name.c_str());
    return 0;
  });
}

}  // namespace

void add_validate(Arguments command, CommandLine& line) {
  Arguments verb = command.verb("validate", "check a run file and report everything that is wrong with it");
  const auto given = std::make_shared<Given>();
  add_run_file(verb, given->run_file);
  add_format(verb, given->format);
  when_chosen(verb, line, given, validate);
}

}  // namespace trainyard::cli
