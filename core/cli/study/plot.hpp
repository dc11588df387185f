// Pictures of a study, as one SVG file that needs nothing else: light and dark as the reader's screen is, values where
// the pointer rests. Torch-free.
#pragma once

#include <string>
#include <vector>

#include <trainyard/study.hpp>

#include "core/cli/study/study_run.hpp"

namespace trainyard::cli {

/// The learning curves of the trials, by what each run wrote in its metrics.jsonl: a plot a panel, series as their mean
/// with its 95 % interval; those that came out best are bold.
std::vector<ResultPlot> learning_curves(const std::vector<Finished>& trials, const std::string& metric,
                                        const std::vector<StudyBest>& best);

/// One below the other.
std::string svg(const std::string& title, const std::vector<ResultPlot>& plots);

}  // namespace trainyard::cli
