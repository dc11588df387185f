#include "core/programs/follow.hpp"

#include <algorithm>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/rundir/socket.hpp"

namespace trainyard::cli {
namespace {

constexpr std::size_t known_bytes = 256;          // spans several lines, which hold steps and times
constexpr std::size_t block = 1 << 20;            // more than any line of a run
constexpr std::size_t most_at_once = 64 * block;  // limit per call for a file read from its beginning

std::string read_at(int fd, std::int64_t offset, std::size_t size) {
  std::string text(size, '\0');
  const ssize_t count = ::pread(fd, text.data(), size, offset);
  text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  return text;
}

}  // namespace

LineFollower::News LineFollower::take() {
  News news;
  const control::Descriptor file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) return news;
  const auto known = static_cast<std::int64_t>(before_.size());
  if (offset_ > 0 && (status.st_ino != inode_ || status.st_size < offset_ ||
                      read_at(file.get(), offset_ - known, before_.size()) != before_)) {
    news.restarted = true;
    offset_ = 0;
    before_.clear();
  }
  inode_ = status.st_ino;
  for (std::size_t total = 0; total < most_at_once;) {
    const std::string text = read_at(file.get(), offset_, block);
    const std::size_t last = text.rfind('\n');
    if (last == std::string::npos) {
      if (text.size() < block) break;
      offset_ += static_cast<std::int64_t>(block);  // skips a line that is too long for a run
      before_.clear();
      total += block;
      continue;
    }
    for (std::size_t begin = 0; begin <= last;) {
      const std::size_t end = text.find('\n', begin);
      news.lines.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
    before_ = text.substr(0, last + 1).substr(last + 1 - std::min(known_bytes, last + 1));
    offset_ += static_cast<std::int64_t>(last + 1);
    total += last + 1;
    if (text.size() < block) break;
  }
  return news;
}

}  // namespace trainyard::cli
