// trainyard runs: lists runs.
#include <iostream>

#include "core/cli/runs_verb.hpp"
#include "core/cli/verbs/verb.hpp"

namespace trainyard::cli {

namespace {

struct Given {
  std::string folder = "runs";
  Format format = Format::text;
};

int list(Given& given) {
  return runs(given.folder, given.format == Format::json, std::cout, std::cerr);
}

}  // namespace

void add_runs(Arguments command, CommandLine& line) {
  Arguments verb = command.verb("runs", "list runs: state, steps, last validation");
  const auto given = std::make_shared<Given>();
  verb.add("folder", given->folder, "where to look (runs)");
  add_format(verb, given->format);
  when_chosen(verb, line, given, list);
}

}  // namespace trainyard::cli
