// Waits for files to be saved below a folder.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "core/rundir/socket.hpp"

namespace trainyard::cli {

class FolderWatch {
 public:
  /// Watches the folder and those below it that are not hidden or named in `without`. Throws DataError.
  FolderWatch(const std::string& folder, std::vector<std::string> without);

  /// Waits at most `limit` for files to be written, made or removed. Changes in quick succession, as editors
  /// make them, count as one: it returns once none has come for a moment.
  bool changed(std::chrono::milliseconds limit);

 private:
  void add(const std::string& folder);
  /// Reads pending notices and returns whether one concerns a watched file.
  bool take();

  std::vector<std::string> without_;
  control::Descriptor notices_;
  std::map<int, std::string> folders_;  ///< by watch descriptor
};

}  // namespace trainyard::cli
