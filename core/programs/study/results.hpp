// Writes the results of a study: tables, one line per trial, the best as run files. Torch-free.
#pragma once

#include <string>
#include <vector>

#include <trainyard/study.hpp>

#include "core/programs/study/study_run.hpp"

namespace trainyard::cli {

/// Returns tables as Markdown (title, columns, rows), separated by an empty line.
std::string tables_text(const std::vector<ResultTable>& tables);

/// Returns one line per trial, sorted by name: labels, length, how it ended, metrics.
std::string runs_csv(const std::vector<Finished>& trials, const StudyOptions& study);

/// Writes table.md, runs.csv, plot.svg and the best as run files; returns the paths of the latter.
std::vector<std::string> write_results(const StudyResult& result, const StudyFile& file, StudyRun& run);

/// Returns all results as JSON, for programs.
std::string results_json(const StudyResult& result, const StudyFile& file, const StudyRun& run,
                         const std::vector<std::string>& best);

}  // namespace trainyard::cli
