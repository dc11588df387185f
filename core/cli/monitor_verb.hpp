// trainyard monitor RUN: follows a run in a terminal.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "core/cli/curve.hpp"
#include "core/cli/run_state.hpp"

namespace trainyard::cli {

/// What is on the screen.
struct View {  // NOLINT(bugprone-exception-escape): as RunState
  RunState run;
  Series loss;                       ///< "train/loss"
  double samples_per_second = 0.0;   ///< of the last record; 0: not known
  std::vector<std::string> journal;  ///< the last lines, as journal_text() gives them
};

/// Lines of at most `columns` characters; as many as `rows` allows: the curve takes what the rest leaves.
std::vector<std::string> frame(const View& view, std::size_t columns, std::size_t rows, bool unicode);

/// Follows until the run ends, `q`, or a signal; prints once where `once`, or where standard output is no
/// terminal. The exit code: 0; 1 where there is no run; 128 + N after signal N.
int monitor(const std::string& run, bool once, std::ostream& errors);

}  // namespace trainyard::cli
