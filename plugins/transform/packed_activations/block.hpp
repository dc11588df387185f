// Memory that holds packed values for the length of a step.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <span>
#include <utility>

namespace packed_activations {

/// Larger blocks are mapped by themselves: on the heap they would lie in the gaps that whole tensors leave, and no whole
/// tensor would fit there any more.
class Block {
 public:
  Block() = default;
  explicit Block(std::size_t size) : size_(size) {
    if (size_ < least_mapped) {
      start_ = static_cast<std::byte*>(::operator new(size_));
      return;
    }
    void* const mapped = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) throw std::bad_alloc();
    start_ = static_cast<std::byte*>(mapped);
  }
  ~Block() {
    if (size_ < least_mapped)
      ::operator delete(start_);
    else
      ::munmap(start_, size_);
  }
  Block(Block&& other) noexcept
      : start_(std::exchange(other.start_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Block& operator=(Block&& other) noexcept {
    std::swap(start_, other.start_);
    std::swap(size_, other.size_);
    return *this;
  }

  std::span<std::byte> all() const { return {start_, size_}; }
  /// Returns what it takes: mapped blocks are whole pages.
  std::size_t bytes() const { return size_ < least_mapped ? size_ : (size_ + page - 1) / page * page; }

 private:
  static constexpr std::size_t least_mapped = 1 << 15, page = 4096;

  std::byte* start_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace packed_activations
