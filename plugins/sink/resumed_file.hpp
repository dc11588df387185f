// A text file of lines that each belong to a step, continued by a resumed run.
#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

#include <trainyard/append_file.hpp>
#include <trainyard/sink.hpp>

namespace trainyard::sink {

/// `name` in the run's folder: new, or, for a resumed run, what it holds up to the step that the run
/// continues, so that no step stands in it twice. `step_of` tells a line's step; a line without one (a
/// heading) stays.
template <class StepOf>
AppendFile open_lines(const RunInfo& run, const std::string& name, StepOf&& step_of) {
  const std::string path = run.directory + "/" + name;
  if (run.resumed_at == 0) return AppendFile(path, AppendFile::Mode::create);
  std::int64_t kept = 0;
  std::ifstream lines(path);
  for (std::string line;
       std::getline(lines, line) && !lines.eof();) {  // an unfinished last line ends at the end
    const std::optional<std::int64_t> step = step_of(line);
    if (step && *step > run.resumed_at) break;
    kept += static_cast<std::int64_t>(line.size()) + 1;
  }
  AppendFile file(path, AppendFile::Mode::extend);
  if (kept < file.size()) file.cut(kept);
  return file;
}

}  // namespace trainyard::sink
