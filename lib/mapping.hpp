// Maps a file into memory.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

namespace trainyard::lib {

/// The first `size` bytes of an open file in memory, to read. The file may be closed meanwhile.
class Mapping {
 public:
  /// Leaves errno where it is not good().
  Mapping(int fd, std::size_t size)
      : size_(size), begin_(::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0)) {}
  ~Mapping() {
    if (good()) ::munmap(begin_, size_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  bool good() const { return begin_ != MAP_FAILED; }
  const std::uint8_t* data() const { return static_cast<const std::uint8_t*>(begin_); }
  std::size_t size() const { return size_; }

 private:
  std::size_t size_;
  void* begin_;
};

}  // namespace trainyard::lib
