// trainyard monitor RUN...: follows runs in a terminal.
#pragma once

#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "core/cli/run_state.hpp"
#include "core/programs/curve.hpp"

namespace trainyard::cli {

/// The data shown on the screen for one run.
struct View {  // NOLINT(bugprone-exception-escape): as RunState
  RunState run;
  Series loss;                               ///< "train/loss"
  std::map<std::string, Series> validation;  ///< by metric of the evaluation passes
  double samples_per_second = 0.0;           ///< from the last record; 0: not known
  std::vector<std::string> journal;          ///< the last lines, in the form of journal_text()
};

/// Returns at most `rows` lines of at most `columns` characters: the curve takes the rows that remain.
std::vector<std::string> frame(const View& view, std::size_t columns, std::size_t rows, bool unicode);

/// The same for several runs at once, each with a letter that marks its curves.
std::vector<std::string> frame(const std::vector<View>& views, std::size_t columns, std::size_t rows,
                               bool unicode);

/// Follows until the runs end, `q`, or a signal; prints once if `once` is set or standard output is no
/// terminal. Returns the exit code: 0; 1 if one is no run; 128 + N after signal N.
int monitor(const std::vector<std::string>& runs, bool once, std::ostream& errors);

}  // namespace trainyard::cli
