// A file that only grows, by whole records, as a sink writes it and a run keeps it.
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

/// Appends without a buffer: a record that was appended survives the end of the process. One thread at a
/// time. Everything throws DataError with the path and the system's reason.
class AppendFile {
 public:
  enum class Mode : std::uint8_t {
    create,   ///< must not exist
    replace,  ///< starts empty
    extend,   ///< continues after its content, if it exists
  };

  AppendFile(std::string path, Mode mode) : path_(std::move(path)) {
    const int how = mode == Mode::create ? O_EXCL : mode == Mode::replace ? O_TRUNC : 0;
    file_.fd = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | how, 0644);
    if (file_.fd < 0) fail("open");
    struct stat status {};
    if (::fstat(file_.fd, &status) != 0) fail("read the size of");
    size_ = status.st_size;
    if (mode == Mode::extend && S_ISREG(status.st_mode) && ::lseek(file_.fd, size_, SEEK_SET) < 0)
      fail("seek in");
  }

  /// Appends all of the record, or (on a full disk) nothing of it.
  void append(std::string_view record) {
    std::size_t done = 0;
    while (done < record.size()) {
      const ssize_t count = ::write(file_.fd, record.data() + done, record.size() - done);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) {
        const int reason = errno;
        rewind(size_);  // a device has no size to go back to
        errno = reason;
        fail("write to");
      }
      done += static_cast<std::size_t>(count);
    }
    size_ += static_cast<std::int64_t>(record.size());
  }

  /// Drops everything after the first `size` bytes.
  void cut(std::int64_t size) {
    if (!rewind(size)) fail("shorten");
    size_ = size;
  }

  /// Waits until the content is on the disk.
  void sync() {
    if (::fsync(file_.fd) != 0 && errno != EINVAL && errno != EROFS)
      fail("sync");  // those two: not a file on a disk
  }

  const std::string& path() const { return path_; }
  std::int64_t size() const { return size_; }
  int descriptor() const { return file_.fd; }

 private:
  struct Descriptor {
    int fd = -1;
    Descriptor() = default;
    Descriptor(Descriptor&& other) noexcept : fd(std::exchange(other.fd, -1)) {}
    ~Descriptor() {
      if (fd >= 0) ::close(fd);
    }
  };

  bool rewind(std::int64_t size) {
    return ::ftruncate(file_.fd, size) == 0 && ::lseek(file_.fd, size, SEEK_SET) >= 0;
  }

  [[noreturn]] void fail(const char* verb) const {
    const int reason = errno;
    std::string message = std::string("cannot ") + verb + " '" + path_ + "': " + std::strerror(reason);
    if (reason == ENOSPC || reason == EDQUOT)
      message += "; free some space, or set run.output_dir to another disk";
    if (reason == EACCES || reason == EROFS || reason == EPERM)
      message += "; make it writable, or set run.output_dir to a folder that is";
    throw DataError(message);
  }

  std::string path_;
  Descriptor file_;
  std::int64_t size_ = 0;
};

}  // namespace trainyard
