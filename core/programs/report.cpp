// trainyard report RUN...: writes runs as a page.
#include "core/programs/report.hpp"

#include <chrono>
#include <filesystem>
#include <iostream>
#include <set>

#include "core/cli/run_state.hpp"
#include "core/programs/programs.hpp"
#include "core/programs/runs.hpp"
#include "core/report/page.hpp"

namespace trainyard::cli {
namespace {

struct ReportArguments {
  std::vector<std::string> runs;
  std::string file = "report.html";
};

int write_report(ReportArguments& given) {
  const std::vector<report::RunData> runs = read_runs(given.runs);
  const report::Page page = report::page_of(runs, report::timestamp());
  report::write_atomically(given.file, page.html);
  std::cout << "wrote " << given.file << ": " << plural(std::ssize(runs), "run") << ", "
            << plural(static_cast<std::int64_t>(page.charts), "chart") << ", "
            << (page.html.size() + 1023) / 1024 << " KiB" << '\n';
  return 0;
}

}  // namespace

std::vector<report::RunData> read_runs(const std::vector<std::string>& given) {
  std::vector<std::string> paths;
  for (const std::string& each : given) {
    const std::vector<RunState> trials = holds_run(each) ? std::vector<RunState>() : find_runs(each);
    if (trials.empty()) paths.push_back(find_run(each));
    for (const RunState& trial : trials) paths.push_back(trial.path);
  }
  std::vector<report::RunData> runs;
  std::set<std::filesystem::path> seen;
  for (const std::string& path : paths) {
    const RunState state =
        life_of(path, loop_patience);  // before its files, so that they have its last records
    if (!seen.insert(std::filesystem::canonical(path)).second) continue;
    runs.push_back(report::read_run(path));
    runs.back().state = name(state.life);
  }
  return runs;
}

void add_report(Arguments verb, CommandLine& line) {
  const auto given = std::make_shared<ReportArguments>();
  verb.add("run", given->runs, "directories of runs or of studies, or names of runs below runs/")
      .required()
      .offers("run");
  verb.add("--out", given->file, "file to write (report.html)");
  when_chosen(verb, line, given, write_report);
}

}  // namespace trainyard::cli
