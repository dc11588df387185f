// Draws a study as one SVG file that needs no other: light or dark as the reader's screen is, with values
// where the pointer rests. Torch-free.
#pragma once

#include <string>
#include <vector>

#include <trainyard/study.hpp>

#include "core/programs/study/study_run.hpp"

namespace trainyard::cli {

/// Returns the learning curves of the trials from the metrics.jsonl of their runs: one plot per panel, each
/// series as its mean with its 95 % interval; the best ones are bold.
std::vector<ResultPlot> learning_curves(const std::vector<Finished>& trials, const std::string& metric,
                                        const std::vector<StudyBest>& best);

/// Returns an SVG with the plots below each other.
std::string svg(const std::string& title, const std::vector<ResultPlot>& plots);

}  // namespace trainyard::cli
