// Reads a file of lines as it grows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainyard::cli {

/// Returns each whole line once. A file that was cut or replaced (a resumed run cuts metrics.jsonl to its
/// checkpoint, and may have grown beyond the old end since) is read again from its beginning.
class LineFollower {
 public:
  explicit LineFollower(std::string path) : path_(std::move(path)) {}

  struct News {
    bool restarted = false;          ///< earlier lines are void
    std::vector<std::string> lines;  ///< complete lines; an unfinished one is kept for later
  };
  /// Returns the new lines; none where the file cannot be read.
  News take();

 private:
  std::string path_;
  std::uint64_t inode_ = 0;
  std::int64_t offset_ = 0;  // offset of the first byte that no returned line covers
  std::string before_;       // the last bytes before it, to recognise the file
};

}  // namespace trainyard::cli
