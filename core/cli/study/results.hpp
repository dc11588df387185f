// What a study leaves in its folder, and what it says of it: tables, a line a trial, the best as run files. Torch-free.
#pragma once

#include <string>
#include <vector>

#include <trainyard/study.hpp>

#include "core/cli/study/study_run.hpp"

namespace trainyard::cli {

/// As Markdown: title, columns, rows; with an empty line between two.
std::string tables_text(const std::vector<ResultTable>& tables);

/// A line a trial, in the order of their names: labels, how far, how it ended, metrics.
std::string runs_csv(const std::vector<Finished>& trials, const StudyOptions& study);

/// Writes table.md, runs.csv, plot.svg and the best as run files; gives the paths of the latter.
std::vector<std::string> write_results(const StudyResult& result, const StudyFile& file, StudyRun& run);

/// All of it for programs.
std::string results_json(const StudyResult& result, const StudyFile& file, const StudyRun& run,
                         const std::vector<std::string>& best);

}  // namespace trainyard::cli
