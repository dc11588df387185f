// Reads a safetensors file of a checkpoint and checks it against the manifest. Torch-free.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "core/rundir/manifest.hpp"
#include "lib/descriptor.hpp"

namespace trainyard::checkpoint {

/// Every function throws DataError, which names the file and the header or tensor that is not as it was
/// written. The entries outlive the object.
class CheckedFile {
 public:
  CheckedFile(const std::string& checkpoint, const FileEntry& entry);

  const std::string& path() const { return path_; }
  void check_size() const;
  void check_header() const;
  void check(const TensorEntry& tensor) const { check(tensor, 0, tensor.length); }
  /// Checks the parts that hold bytes from `begin` to `end`; without parts, the whole tensor.
  void check(const TensorEntry& tensor, std::uint64_t begin, std::uint64_t end) const;

  /// Checks bytes that were read of a tensor without parts.
  void check(const TensorEntry& tensor, std::string_view bytes) const;

  /// Returns the bytes of a tensor, decoded and checked where a codec has stored it.
  std::string bytes_of(const TensorEntry& tensor) const;

  /// Hands the `length` bytes of the file from `offset` on to `take`, in order and in pieces.
  void read(std::uint64_t offset, std::uint64_t length,
            const std::function<void(std::string_view bytes)>& take) const;

 private:
  void check(const std::string& what, std::uint64_t offset, std::uint64_t length,
             const std::string& digest) const;
  void compare(const std::string& what, const std::string& found, const std::string& digest) const;

  const FileEntry& entry_;
  std::string path_;
  lib::Descriptor descriptor_;
  std::uint64_t size_ = 0;
};

}  // namespace trainyard::checkpoint
