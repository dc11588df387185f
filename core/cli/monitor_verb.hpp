// trainyard monitor RUN...: follows runs in a terminal.
#pragma once

#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "core/cli/curve.hpp"
#include "core/cli/run_state.hpp"

namespace trainyard::cli {

/// What is on the screen.
struct View {  // NOLINT(bugprone-exception-escape): as RunState
  RunState run;
  Series loss;                               ///< "train/loss"
  std::map<std::string, Series> validation;  ///< of each metric of the evaluations
  double samples_per_second = 0.0;           ///< of the last record; 0: not known
  std::vector<std::string> journal;          ///< the last lines, as journal_text() gives them
};

/// Lines of at most `columns` characters; as many as `rows` allows: the curve takes what the rest leaves.
std::vector<std::string> frame(const View& view, std::size_t columns, std::size_t rows, bool unicode);

/// Of several runs at once: a letter for each, which stands upon its curves.
std::vector<std::string> frame(const std::vector<View>& views, std::size_t columns, std::size_t rows,
                               bool unicode);

/// Follows until the runs end, `q`, or a signal; prints once where `once`, or where standard output is no
/// terminal. The exit code: 0; 1 where one is no run; 128 + N after signal N.
int monitor(const std::vector<std::string>& runs, bool once, std::ostream& errors);

}  // namespace trainyard::cli
