#include "core/rundir/checked_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <trainyard/error.hpp>

#include "core/rundir/codecs.hpp"
#include "lib/sha256.hpp"

namespace trainyard::checkpoint {
namespace {

[[noreturn]] void fail_in(const std::string& path, const std::string& what) {
  throw DataError(path + ": " + what);
}

}  // namespace

CheckedFile::CheckedFile(const std::string& checkpoint, const FileEntry& entry)
    : entry_(entry),
      path_(checkpoint + "/" + entry.name),
      descriptor_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (!descriptor_) fail_in(path_, std::strerror(errno));
  struct stat status {};
  if (::fstat(descriptor_.get(), &status) != 0 || !S_ISREG(status.st_mode))
    fail_in(path_, "not a regular file");
  size_ = static_cast<std::uint64_t>(status.st_size);
}

void CheckedFile::check_size() const {
  if (size_ != entry_.size)
    fail_in(path_,
            "has " + std::to_string(size_) + " bytes; " + std::to_string(entry_.size) + " were written");
}

void CheckedFile::check_header() const {
  check("its header", 0, entry_.header, entry_.header_digest);
}

void CheckedFile::check(const TensorEntry& tensor, std::uint64_t begin, std::uint64_t end) const {
  const std::string what = "tensor \"" + stored_name(tensor.owner, tensor.name) + "\"";
  if (!tensor.codec.empty()) return void(bytes_of(tensor));
  if (tensor.parts.empty()) return check(what, tensor.offset, tensor.length, tensor.digest);
  std::uint64_t at = 0;
  for (std::size_t rank = 0; rank < tensor.parts.size(); ++rank) {
    const PartEntry& part = tensor.parts[rank];
    if (at < end && at + part.length > begin)
      check("the part of rank " + std::to_string(rank) + " of " + what, tensor.offset + at, part.length,
            part.digest);
    at += part.length;
  }
}

void CheckedFile::check(const TensorEntry& tensor, std::string_view bytes) const {
  compare("tensor \"" + stored_name(tensor.owner, tensor.name) + "\"", lib::Sha256::of(bytes), tensor.digest);
}

std::string CheckedFile::bytes_of(const TensorEntry& tensor) const {
  std::string bytes;
  read(tensor.offset, tensor.length, [&](std::string_view piece) { bytes += piece; });
  if (tensor.codec.empty()) return bytes;
  bytes = decoded(tensor, bytes, path_);
  check(tensor, bytes);
  return bytes;
}

void CheckedFile::check(const std::string& what, std::uint64_t offset, std::uint64_t length,
                        const std::string& digest) const {
  if (length > size_ || offset > size_ - length)
    fail_in(path_, what + " is cut off: it ends at byte " + std::to_string(offset + length) +
                       ", the file at " + std::to_string(size_));
  lib::Sha256 hash;
  read(offset, length, [&](std::string_view bytes) { hash.update(bytes.data(), bytes.size()); });
  compare(what, hash.hex(), digest);
}

void CheckedFile::compare(const std::string& what, const std::string& found,
                          const std::string& digest) const {
  if (found != digest)
    fail_in(path_, what + " is not as it was written: its SHA-256 is " + found + " instead of " + digest);
}

void CheckedFile::read(std::uint64_t offset, std::uint64_t length,
                       const std::function<void(std::string_view bytes)>& take) const {
  std::string buffer(std::min<std::uint64_t>(length, 1 << 20), '\0');
  while (length > 0) {
    const ssize_t count = ::pread(descriptor_.get(), buffer.data(),
                                  std::min<std::uint64_t>(length, buffer.size()), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_in(path_, std::strerror(errno));
    if (count == 0) fail_in(path_, "ends early: somebody cut it off while it was read");
    take({buffer.data(), static_cast<std::size_t>(count)});
    offset += static_cast<std::uint64_t>(count);
    length -= static_cast<std::uint64_t>(count);
  }
}

}  // namespace trainyard::checkpoint
