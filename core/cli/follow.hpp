// A growing file of lines, read as it grows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trainyard::cli {

/// Gives each whole line once. A file that was cut or replaced (a resumed run cuts metrics.jsonl to its
/// checkpoint, and may have grown beyond the old end since) is read again from its beginning.
class LineFollower {
 public:
  explicit LineFollower(std::string path) : path_(std::move(path)) {}

  struct News {
    bool restarted = false;          ///< forget what came before
    std::vector<std::string> lines;  ///< whole ones; a part of a line waits for its end
  };
  /// None where the file cannot be read.
  News take();

 private:
  std::string path_;
  std::uint64_t inode_ = 0;
  std::int64_t offset_ = 0;  // of the first byte that belongs to no line given
  std::string before_;       // the last bytes before it, to know the file again
};

}  // namespace trainyard::cli
