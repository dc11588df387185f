// The bytes of samples, as their source gave them, in files of a local folder. They outlive the process, and
// several processes may use the folder at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "packing.hpp"

namespace cache {

/// FOLDER/SOURCE/SHARD/INDEX, each with a header that holds index, length and a checksum (CRC-32) of both and
/// of the bytes. A file gets its name when it is whole; nothing is synced to the disk, since what a loss of
/// power damages is seen by the checksum and fetched again. An entry that a codec made shorter has another
/// magic and names the codec. Any thread.
class DiskLevel {
 public:
  using Bytes = std::vector<std::uint8_t>;
  using Warn = std::function<void(const std::string&)>;

  /// `source`: a name of the source, 64 hexadecimal digits, different for other bytes. Throws ConfigError where
  /// `folder` holds other things than caches: it may be somebody's data, the images that are read perhaps.
  /// `packing` outlives this object.
  DiskLevel(const std::string& folder, const std::string& source, const Packing& packing, Warn warn);

  /// Nothing where there is no entry, or one that is damaged: then its file is named in a warning; or one that another
  /// codec packed, which is told once for each codec.
  std::optional<Bytes> get(std::int64_t index) const;
  /// Replaces the entry. A disk that takes no more is told once; from then on nothing is written.
  void put(std::int64_t index, std::span<const std::uint8_t> bytes);

  struct Written {
    std::int64_t bytes = 0, stored = 0;  ///< of the samples; of their entries, headers not counted
  };
  /// Returns what was written since the last call.
  Written take_written() { return {.bytes = bytes_.exchange(0), .stored = stored_.exchange(0)}; }

 private:
  std::filesystem::path path(std::int64_t index) const;
  std::optional<Bytes> unpack(const Bytes& content, std::string& damage) const;

  const std::filesystem::path folder_;
  const Packing& packing_;
  const Warn warn_;
  std::atomic<bool> writes_{true};
  std::atomic<std::int64_t> bytes_{0}, stored_{0};
  mutable std::mutex told_access_;
  mutable std::set<std::string, std::less<>> told_;  ///< codecs that are not there
};

}  // namespace cache
