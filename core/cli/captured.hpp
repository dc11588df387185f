// A program that is run to its end, with all that it prints.
#pragma once

#include <string>
#include <vector>

namespace trainyard::cli {

struct Captured {
  int code = 0;      ///< 128 and the signal's number where one ended it
  std::string text;  ///< of standard output and error
};

/// Looked for in the PATH where the first word has no slash. A signal that ends this process ends it, too. Throws
/// Error where it cannot be started.
Captured captured(const std::vector<std::string>& words);

}  // namespace trainyard::cli
