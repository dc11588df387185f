// trainyard runs: lists runs, and compares some of them.
#include <iostream>

#include "core/cli/compare_verb.hpp"
#include "core/cli/runs_verb.hpp"
#include "core/cli/verbs/verb.hpp"

namespace trainyard::cli {
namespace {

struct RunsArguments {
  std::string folder = "runs";
  std::vector<std::string> compared;
  Format format = Format::text;
};

int list_runs(RunsArguments& given) {
  return runs(given.folder, given.format == Format::json, std::cout, std::cerr);
}

int compare(RunsArguments& given) {
  return compare_runs(given.compared, given.format == Format::json, std::cout);
}

}  // namespace

void add_runs(Arguments command, CommandLine& line) {
  Arguments verb = command.verb("runs", "list runs: state, steps, last validation");
  const auto given = std::make_shared<RunsArguments>();
  verb.add("folder", given->folder, "where to look (runs)");
  add_format(verb, given->format);
  when_chosen(verb, line, given, list_runs);
  Arguments beside =
      verb.further_verb("compare", "final and best metrics of runs, and the keys in which they differ");
  beside.add("run", given->compared, "directories of runs, or their names below runs/")
      .required()
      .offers("run");
  add_format(beside, given->format);
  when_chosen(beside, line, given, compare);
}

}  // namespace trainyard::cli
