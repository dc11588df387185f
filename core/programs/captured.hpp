// Runs a program to its end and captures all its output.
#pragma once

#include <string>
#include <vector>

namespace trainyard::cli {

struct Captured {
  int code = 0;      ///< exit code; 128 + the number of a signal that ended it
  std::string text;  ///< standard output and error together
};

/// Runs a program, found in the PATH if the first word has no slash. A signal that ends this process also
/// ends it. Throws Error where it cannot be started.
Captured captured(const std::vector<std::string>& words);

}  // namespace trainyard::cli
