#include "core/cli/report_verb.hpp"

#include <chrono>
#include <filesystem>
#include <set>

#include "core/cli/run_state.hpp"
#include "core/report/page.hpp"

namespace trainyard::cli {
namespace {

std::string page_size(std::size_t bytes) {
  return std::to_string((bytes + 1023) / 1024) + " KiB";
}

std::string count_of(std::size_t count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
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

int report_runs(const std::vector<std::string>& given, const std::string& file, std::ostream& out) {
  const std::vector<report::RunData> runs = read_runs(given);
  const report::Page page = report::page_of(runs, report::timestamp());
  report::write_atomically(file, page.html);
  out << "wrote " << file << ": " << count_of(runs.size(), "run") << ", " << count_of(page.charts, "chart")
      << ", " << page_size(page.html.size()) << '\n';
  return 0;
}

}  // namespace trainyard::cli
