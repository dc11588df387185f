// trainyard plugins dev: watches a plugin's folder beside a run that is going. Saved changes are built,
// checked and swapped in; if the build or a check fails, the run is left alone.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace trainyard::cli {

struct DevOptions {
  std::string folder;                    ///< has a CMakeLists.txt; builds go to folder/build
  std::string run;                       ///< directory of the run, or its name below runs/
  std::vector<std::string> assignments;  ///< the plugin's options if the run has another in its slot
  double timeout = 60.0;                 ///< seconds to wait for a swap
  bool once = false;                     ///< builds, checks and swaps once, then ends
};

/// Works until the run ends or a signal comes. Returns the exit code: done if the run has ended; with `once`,
/// plugin if it was not swapped in. Throws ConfigError if folder or run are unsuitable.
int plugins_dev(const DevOptions& options, std::ostream& out);

/// Returns the first errors in the output of a compiler, linker or the seal, each with the lines that show
/// it, and paths below `folder` shortened.
std::string short_errors(const std::string& text, const std::string& folder);

}  // namespace trainyard::cli
