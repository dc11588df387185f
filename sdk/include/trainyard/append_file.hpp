// A file that only grows, by whole records: what a sink writes and a run keeps.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <trainyard/error.hpp>

namespace trainyard {

/// Not buffered: a record that was appended survives the end of the process. One thread at a time.
/// Everything throws DataError with the path and the system's reason.
class AppendFile {
 public:
  enum class Mode : std::uint8_t {
    create,   ///< must not exist
    replace,  ///< starts empty
    extend,   ///< goes on after what it holds, if it exists
  };

  AppendFile(std::string path, Mode mode) : path_(std::move(path)) {
    const int how = mode == Mode::create ? O_EXCL : mode == Mode::replace ? O_TRUNC : 0;
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | how, 0644);
    if (fd_ < 0) fail("open");
    struct stat status {};
    if (::fstat(fd_, &status) != 0) fail("read the size of");
    size_ = status.st_size;
    if (mode == Mode::extend && S_ISREG(status.st_mode) && ::lseek(fd_, size_, SEEK_SET) < 0) fail("seek in");
  }
  AppendFile(AppendFile&& other) noexcept
      : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}
  AppendFile& operator=(AppendFile&&) = delete;
  ~AppendFile() {
    if (fd_ >= 0) ::close(fd_);
  }

  /// Appends all of the record, or (a full disk) nothing of it.
  void append(std::string_view record) {
    std::size_t done = 0;
    while (done < record.size()) {
      const ssize_t count = ::write(fd_, record.data() + done, record.size() - done);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) {
        const int reason = errno;
        cut(size_);
        errno = reason;
        fail("write to");
      }
      done += static_cast<std::size_t>(count);
    }
    size_ += static_cast<std::int64_t>(record.size());
  }

  /// Drops everything after the first `size` bytes.
  void cut(std::int64_t size) {
    // A device or a pipe has no size to cut; what could be kept back is kept back.
    if (::ftruncate(fd_, size) == 0 && ::lseek(fd_, size, SEEK_SET) >= 0) size_ = size;
  }

  /// Waits until the disk has it.
  void sync() {
    if (::fsync(fd_) != 0 && errno != EINVAL && errno != EROFS)
      fail("sync");  // those two: not a file on a disk
  }

  const std::string& path() const { return path_; }
  std::int64_t size() const { return size_; }
  int descriptor() const { return fd_; }

 private:
  [[noreturn]] void fail(const char* verb) {
    const int reason = errno;
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
    std::string message = std::string("cannot ") + verb + " '" + path_ + "': " + std::strerror(reason);
    if (reason == ENOSPC || reason == EDQUOT)
      message += "; free some space, or set run.output_dir to another disk";
    if (reason == EACCES || reason == EROFS || reason == EPERM)
      message += "; make it writable, or set run.output_dir to a folder that is";
    throw DataError(message);
  }

  std::string path_;
  int fd_ = -1;
  std::int64_t size_ = 0;
};

}  // namespace trainyard
