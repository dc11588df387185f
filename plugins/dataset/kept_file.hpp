// Data as it lies in memory, in a file that is mapped: it is read once from its own files, and the processes
// of a machine share its pages.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <trainyard/error.hpp>
#include <trainyard/keeps_data.hpp>

#include "files.hpp"

#include "lib/descriptor.hpp"
#include "lib/fnv1a.hpp"
#include "lib/mapping.hpp"
#include "lib/new_file.hpp"

namespace datasets {

using namespace trainyard;

/// What such a file holds: a few numbers that describe it, and arrays, each from a multiple of 64 bytes on.
struct Kept {
  std::vector<std::int64_t> numbers;
  std::vector<std::span<const std::byte>> parts;
  std::shared_ptr<const void> owner;  ///< of the parts, of a file that is mapped

  template <class T>
  void add(std::span<const T> part) {
    parts.push_back(std::as_bytes(part));
  }
  template <class T>
  std::span<const T> part(std::size_t number) const {
    return {reinterpret_cast<const T*>(parts[number].data()), parts[number].size() / sizeof(T)};
  }
};

/// A kept file of some kind of data. Numbers have the byte order of the machine.
class KeptFile {
 public:
  /// The file of a folder for the data of that name, a text that may be long. `kind`, of at most eight letters,
  /// is of what lies in it and how; `what` for messages: "graph".
  KeptFile(const std::string& folder, std::string name, std::string_view kind, std::string what)
      : name_(std::move(name)), what_(std::move(what)) {
    std::copy_n(kind.begin(), std::min(kind.size(), mark_.size()), mark_.begin());
    path_ = folder + "/" + lib::Fnv1a().update(name_).hex() + "." + what_;
  }

  const std::string& path() const { return path_; }

  /// What was written; nothing where the file is not there, or of another name. Throws DataError where it is
  /// damaged: the sum over its bytes is another.
  std::optional<Kept> map() const {
    const std::shared_ptr<const lib::Mapping> mapping = open();
    if (!mapping) return std::nullopt;
    const std::uint8_t* bytes = mapping->data();
    Header header;
    std::memcpy(&header, bytes, sizeof header);
    const auto crc = static_cast<std::uint32_t>(crc32_z(0, bytes + crc_from, mapping->size() - crc_from));
    const std::size_t sizes_at = sizeof header + header.numbers * sizeof(std::int64_t);
    if (header.mark != mark_ || crc != header.crc ||
        sizes_at + header.parts * sizeof(std::int64_t) > mapping->size())
      fail_damaged();
    Kept kept{.numbers = std::vector<std::int64_t>(header.numbers), .parts = {}, .owner = mapping};
    std::memcpy(kept.numbers.data(), bytes + sizeof header, header.numbers * sizeof(std::int64_t));
    std::vector<std::int64_t> sizes(header.parts);
    std::memcpy(sizes.data(), bytes + sizes_at, header.parts * sizeof(std::int64_t));
    std::size_t at = padded(sizes_at + header.parts * sizeof(std::int64_t));
    for (const std::int64_t each : sizes) {
      const auto size = static_cast<std::size_t>(each);
      if (at > mapping->size() || size > mapping->size() - at) fail_damaged();
      kept.parts.push_back(std::as_bytes(std::span(bytes + at, size)));
      at += padded(size);
    }
    if (kept.parts.empty() || text_of(kept.parts.front()) != name_) return std::nullopt;
    kept.parts.erase(kept.parts.begin());
    return kept;
  }

  /// Writes the file anew, at once and whole. Throws DataError where that cannot be done.
  void write(const Kept& kept) const {
    lib::NewFile made(path_, "." + std::to_string(::getpid()));
    Output out(made.temporary());
    std::vector<std::span<const std::byte>> parts = {std::as_bytes(std::span(name_))};
    parts.insert(parts.end(), kept.parts.begin(), kept.parts.end());
    std::vector<std::int64_t> sizes;
    for (const auto& part : parts) sizes.push_back(std::ssize(part));
    Header header{.mark = mark_,
                  .numbers = static_cast<std::uint32_t>(kept.numbers.size()),
                  .parts = static_cast<std::uint32_t>(parts.size())};
    out.add(std::as_bytes(std::span(&header, 1)), crc_from);
    out.add(std::as_bytes(std::span(kept.numbers)));
    out.add(std::as_bytes(std::span(sizes)));
    for (const auto& part : parts) {
      out.fill();
      out.add(part);
    }
    out.fill();
    header.crc = out.crc();
    const bool whole = out.finish(std::as_bytes(std::span(&header, 1)));
    int reason = errno == 0 ? EIO : errno;
    if (whole) {
      const auto failure = made.put_in_place();
      if (!failure) return;
      reason = failure->reason;
    }
    throw DataError(path_ + ": the " + what_ + " cannot be kept: " + std::strerror(reason) +
                    "; make room, or leave keep_in out");
  }

  /// What is read of the file makes no sense, though its sum is right.
  [[noreturn]] void fail_damaged() const {
    throw DataError(path_ + ": the kept " + what_ + " is damaged: remove the file, to have it made anew");
  }

 private:
  struct Header {
    std::array<char, 8> mark{};
    std::uint32_t crc = 0;  ///< of all that follows
    std::uint32_t numbers = 0, parts = 0, unused = 0;
  };
  static constexpr std::size_t crc_from = offsetof(Header, crc) + sizeof(Header::crc);

  static std::size_t padded(std::size_t size) { return (size + 63) / 64 * 64; }
  static std::string_view text_of(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  /// Bytes one behind the other, with their sum.
  class Output {
   public:
    explicit Output(const std::string& path) : file_(path, std::ios::binary) {}
    void add(std::span<const std::byte> bytes, std::size_t unsummed = 0) {
      if (bytes.empty()) return;  // of a null pointer zlib begins its sum anew
      crc_ = crc32_z(crc_, reinterpret_cast<const Bytef*>(bytes.data()) + unsummed, bytes.size() - unsummed);
      file_.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
      size_ += bytes.size();
    }
    /// Zeros up to a multiple of 64.
    void fill() {
      constexpr std::array<std::byte, 64> zeros{};
      add(std::span(zeros).first(padded(size_) - size_));
    }
    std::uint32_t crc() const { return static_cast<std::uint32_t>(crc_); }
    /// Whether all of it is written, `header` at its beginning.
    bool finish(std::span<const std::byte> header) {
      file_.seekp(0);
      file_.write(reinterpret_cast<const char*>(header.data()), static_cast<std::streamsize>(header.size()));
      file_.close();
      return !file_.fail();
    }

   private:
    std::ofstream file_;
    uLong crc_ = 0;
    std::size_t size_ = 0;
  };

  std::shared_ptr<const lib::Mapping> open() const {
    const lib::Descriptor file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file && errno == ENOENT) return nullptr;
    struct stat status {};
    if (!file || ::fstat(file.get(), &status) != 0) throw DataError(path_ + ": " + std::strerror(errno));
    if (status.st_size < static_cast<off_t>(sizeof(Header))) fail_damaged();
    auto mapping = std::make_shared<const lib::Mapping>(file.get(), static_cast<std::size_t>(status.st_size));
    if (!mapping->good()) throw DataError(path_ + ": " + std::strerror(errno));
    return mapping;
  }

  std::string name_, what_, path_;
  std::array<char, 8> mark_{};
};

/// Throws ConfigError unless the folder is there. Asked at every opening, whether or not the data is in memory
/// already: a run that was accepted must be resumable.
inline void check_keep_in(const std::string& folder) {
  if (!folder.empty() && !std::filesystem::is_directory(folder))
    throw ConfigError("keep_in = \"" + folder +
                      "\" is no folder: name one that is there, or leave it out and nothing is kept");
}

/// The file at a path, or those below it, in order.
inline std::vector<std::filesystem::path> files_at(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored)) return {path};
  std::vector<fs::path> files;
  for (fs::recursive_directory_iterator each(path, ignored), end; each != end; each.increment(ignored))
    if (each->is_regular_file(ignored)) files.push_back(each->path());
  std::sort(files.begin(), files.end());
  return files;
}

/// Names, sizes and times of change of what lies at a path, in the name of what is made of it: a file that
/// was written anew is another.
inline void add_files(const std::string& path, std::ostream& out) {
  std::error_code ignored;
  for (const std::filesystem::path& file : files_at(path))
    out << file.string() << '\0' << std::filesystem::file_size(file, ignored) << ' '
        << std::filesystem::last_write_time(file, ignored).time_since_epoch().count() << '\n';
}

/// KeepsData::keep of a dataset whose own files lie at `path`; `work` opens it.
template <class Work>
KeptFacts kept_by(const std::string& folder, const std::string& path, const KeptProgress& progress,
                  const Work& work) {
  if (folder.empty())
    throw ConfigError("names no folder to keep the data in: set data.keep_in to one that is there");
  check_keep_in(folder);
  std::int64_t done = 0, total = 1;
  std::error_code ignored;
  for (const std::filesystem::path& file : files_at(path))
    total += static_cast<std::int64_t>(std::filesystem::file_size(file, ignored));
  const std::function<void(std::size_t)> tell = [&](std::size_t bytes) {
    done = std::min(done + static_cast<std::int64_t>(bytes), total - 1);
    progress(done, total);
  };
  struct Watching {
    explicit Watching(const std::function<void(std::size_t)>& tell) { files::watcher = &tell; }
    ~Watching() { files::watcher = nullptr; }
  };
  const Watching watching(tell);
  KeptFacts facts = work();
  progress(total, total);
  return facts;
}

}  // namespace datasets
