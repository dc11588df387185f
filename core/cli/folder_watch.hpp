// Tells when somebody saves a file below a folder.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "core/rundir/socket.hpp"

namespace trainyard::cli {

class FolderWatch {
 public:
  /// Of the folder and those below it that are none of `without` (names), and are not hidden. Throws DataError.
  FolderWatch(const std::string& folder, std::vector<std::string> without);

  /// Waits at most so long. True where a file was written, came or went; what an editor does at once is one
  /// change: it returns once nothing has come for a moment.
  bool changed(std::chrono::milliseconds limit);

 private:
  void add(const std::string& folder);
  /// Reads what has come; whether it concerns a file that is looked at.
  bool take();

  std::vector<std::string> without_;
  control::Descriptor notices_;
  std::map<int, std::string> folders_;  ///< by the number of their watch
};

}  // namespace trainyard::cli
