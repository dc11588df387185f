// The bytes of samples, as their source gave them, in files of a local folder. They outlive the process, and
// several processes may use the folder at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace cache {

/// FOLDER/SOURCE/SHARD/INDEX, each with a header that holds index, length and a checksum (CRC-32) of both and
/// of the bytes. A file gets its name when it is whole; nothing is synced to the disk, since what a loss of
/// power damages is seen by the checksum and fetched again. Any thread.
class DiskLevel {
 public:
  using Bytes = std::vector<std::uint8_t>;
  using Warn = std::function<void(const std::string&)>;

  /// `source`: a name of the source, 64 hexadecimal digits, different for other bytes. Throws ConfigError where
  /// `folder` holds other things than caches: it may be somebody's data, the images that are read perhaps.
  DiskLevel(const std::string& folder, const std::string& source, Warn warn);

  /// Nothing where there is no entry, or one that is damaged: then its file is named in a warning.
  std::optional<Bytes> get(std::int64_t index) const;
  /// Replaces the entry. A disk that takes no more is told once; from then on nothing is written.
  void put(std::int64_t index, std::span<const std::uint8_t> bytes);

 private:
  std::filesystem::path path(std::int64_t index) const;

  const std::filesystem::path folder_;
  const Warn warn_;
  std::atomic<bool> writes_{true};
};

}  // namespace cache
