// trainyard report RUN...: writes runs as a page.
#include "core/programs/report.hpp"

#include <chrono>
#include <filesystem>
#include <iostream>
#include <set>

#include "core/cli/run_state.hpp"
#include "core/programs/programs.hpp"
#include "core/report/page.hpp"

namespace trainyard::cli {
namespace {

std::string page_size(std::size_t bytes) {
  return std::to_string((bytes + 1023) / 1024) + " KiB";
}

struct ReportArguments {
  std::vector<std::string> runs;
  std::string file = "report.html";
};

int write_report(ReportArguments& given) {
  const std::vector<report::RunData> runs = read_runs(given.runs);
  const report::Page page = report::page_of(runs, report::timestamp());
  report::write_atomically(given.file, page.html);
  std::cout << "wrote " << given.file << ": " << plural(std::ssize(runs), "run") << ", "
            << plural(static_cast<std::int64_t>(page.charts), "chart") << ", " << page_size(page.html.size())
            << '\n';
  return 0;
}

}  // namespace

std::vector<report::RunData> read_runs(const std::vector<std::string>& given) {
  std::vector<report::RunData> runs;
  std::set<std::filesystem::path> seen;
  for (const std::string& each : given) {
    const std::string path = find_run(each);
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
  verb.add("run", given->runs, "directories of runs, or their names below runs/").required().offers("run");
  verb.add("--out", given->file, "file to write (report.html)");
  when_chosen(verb, line, given, write_report);
}

}  // namespace trainyard::cli
