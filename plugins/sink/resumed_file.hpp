// A text file of lines that each belong to a step, continued by a resumed run.
#pragma once

#include <cstdint>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <trainyard/formats/append_file.hpp>
#include <trainyard/sink.hpp>

namespace sinks {

using namespace trainyard;

/// What a line says: the names of its values, at a step.
struct Said {
  std::int64_t step = 0;
  std::vector<std::string> names;
};

class ResumedFile {
 public:
  /// `name` in the run's folder: new, or, for a resumed run, what it holds up to the step that the run
  /// continues, so that no step stands in it twice. `said` tells what a line says; one that says nothing
  /// (a heading, a message) stays.
  template <class SaidOf>
  ResumedFile(const RunInfo& run, const std::string& name, SaidOf&& said)
      : resumed_at_(run.resumed_at), file_(open(run, name, said)) {}

  AppendFile& file() { return file_; }

  /// The values of a record but those that stand in the file. A run that ended after an evaluation, and goes
  /// on from the checkpoint ahead of it, makes it again, with the same outcome.
  std::vector<std::pair<std::string, double>> fresh(const Record& record) const {
    auto values = record.values;
    if (record.step == resumed_at_)
      std::erase_if(values, [this](const auto& value) { return said_.contains(value.first); });
    return values;
  }

 private:
  template <class SaidOf>
  AppendFile open(const RunInfo& run, const std::string& name, SaidOf&& said_of) {
    const std::string path = run.directory + "/" + name;
    if (run.resumed_at == 0) return AppendFile(path, AppendFile::Mode::create);
    std::int64_t kept = 0;
    std::ifstream lines(path);
    for (std::string line;
         std::getline(lines, line) && !lines.eof();) {  // an unfinished last line ends at the end
      const std::optional<Said> said = said_of(line);
      if (said && said->step > run.resumed_at) break;
      if (said && said->step == run.resumed_at) said_.insert(said->names.begin(), said->names.end());
      kept += static_cast<std::int64_t>(line.size()) + 1;
    }
    AppendFile file(path, AppendFile::Mode::extend);
    if (kept < file.size()) file.cut(kept);
    return file;
  }

  std::int64_t resumed_at_;
  std::set<std::string> said_;  ///< at the step that the run was resumed at
  AppendFile file_;
};

}  // namespace sinks
