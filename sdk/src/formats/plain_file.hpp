// A file as the formats read and write it: whole, or at places.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include <trainyard/error.hpp>

#include "lib/descriptor.hpp"

namespace trainyard::formats {

[[noreturn]] inline void fail(const std::string& path, const std::string& what) {
  throw DataError(path + ": " + what);
}

class File {
 public:
  File(const std::string& path, int flags)
      : path_(path), descriptor_(::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, 0644)) {
    if (!descriptor_) fail(path, std::strerror(errno));
  }

  void write(const void* data, std::size_t size) {
    write_at(at_, data, size);
    at_ += size;
  }
  void read(void* data, std::size_t size) {
    read_at(at_, data, size);
    at_ += size;
  }
  void write_at(std::uint64_t offset, const void* data, std::size_t size) {
    const auto* bytes = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t done = ::pwrite(descriptor_.get(), bytes, size, static_cast<off_t>(offset));
      if (done < 0 && errno == EINTR) continue;
      if (done < 0 && (errno == ENOSPC || errno == EDQUOT))
        fail(path_,
             std::string(std::strerror(errno)) + "; free some space, or set run.output_dir to another disk");
      if (done < 0) fail(path_, std::strerror(errno));
      bytes += done;
      offset += static_cast<std::uint64_t>(done);
      size -= static_cast<std::size_t>(done);
    }
  }
  void read_at(std::uint64_t offset, void* data, std::size_t size) const {
    auto* bytes = static_cast<char*>(data);
    while (size > 0) {
      const ssize_t done = ::pread(descriptor_.get(), bytes, size, static_cast<off_t>(offset));
      if (done < 0 && errno == EINTR) continue;
      if (done < 0) fail(path_, std::strerror(errno));
      if (done == 0) fail(path_, "the file ends early: it was truncated");
      bytes += done;
      offset += static_cast<std::uint64_t>(done);
      size -= static_cast<std::size_t>(done);
    }
  }
  void resize(std::uint64_t size) {
    if (::ftruncate(descriptor_.get(), static_cast<off_t>(size)) != 0) fail(path_, std::strerror(errno));
  }
  void sync() {
    if (::fsync(descriptor_.get()) != 0) fail(path_, std::strerror(errno));
  }
  std::uint64_t size() const {
    struct stat status {};
    if (::fstat(descriptor_.get(), &status) != 0 || !S_ISREG(status.st_mode))
      fail(path_, "not a regular file");
    return static_cast<std::uint64_t>(status.st_size);
  }

 private:
  std::string path_;
  lib::Descriptor descriptor_;
  std::uint64_t at_ = 0;  ///< of write() and read()
};

}  // namespace trainyard::formats
