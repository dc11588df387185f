// trainyard plugins dev: a plugin's folder beside a run that is going. What is saved there is built, checked and
// swapped in; what does not build or does not pass leaves the run alone.
#pragma once

#include <ostream>
#include <string>
#include <vector>

namespace trainyard::cli {

struct DevOptions {
  std::string folder;                    ///< with a CMakeLists.txt; it is built in folder/build
  std::string run;                       ///< directory of the run, or its name below runs/
  std::vector<std::string> assignments;  ///< options for the plugin where the run has another in its slot
  double timeout = 60.0;                 ///< seconds to wait for a swap
  bool once = false;                     ///< builds, checks and swaps once, then ends
};

/// Until the run ends or a signal comes. The exit code: done, where the run has ended; with `once` plugin where
/// it was not swapped in. Throws ConfigError where folder or run will not do.
int plugins_dev(const DevOptions& options, std::ostream& out);

/// The first errors in what a compiler, linker or the seal said, each with the lines that show it, and paths below
/// `folder` in short.
std::string short_errors(const std::string& text, const std::string& folder);

}  // namespace trainyard::cli
