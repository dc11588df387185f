// trainyard report: writes runs as a page.
#include <iostream>

#include "core/cli/report_verb.hpp"
#include "core/cli/verbs/verb.hpp"

namespace trainyard::cli {
namespace {

struct ReportArguments {
  std::vector<std::string> runs;
  std::string file = "report.html";
};

int report(ReportArguments& given) {
  return report_runs(given.runs, given.file, std::cout);
}

}  // namespace

void add_report(Arguments command, CommandLine& line) {
  Arguments verb = command.verb("report", "write runs as a page: curves, times, differences, journal");
  const auto given = std::make_shared<ReportArguments>();
  verb.add("run", given->runs, "directories of runs, or their names below runs/").required().offers("run");
  verb.add("--out", given->file, "file to write (report.html)");
  when_chosen(verb, line, given, report);
}

}  // namespace trainyard::cli
