#include "disk_level.hpp"

#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>

#include <trainyard/error.hpp>

namespace cache {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t files_a_folder = 1024;
constexpr std::uint64_t most_bytes = std::uint64_t{1} << 32;  ///< of a sample that a codec packed

using Magic = std::array<char, 8>;
constexpr Magic plain_magic = {'t', 'y', 'c', 'a', 'c', 'h', 'e', '1'};
/// Of an entry whose bytes are: how many the sample has (8 bytes), the length of the codec's name (1), the name, the
/// code.
constexpr Magic packed_magic = {'t', 'y', 'c', 'a', 'c', 'h', 'e', '2'};

struct Header {
  Magic magic = plain_magic;
  std::int64_t index = 0;
  std::uint64_t length = 0;
  std::uint64_t checksum = 0;
};

std::uint64_t checksum(const Header& header, std::span<const std::uint8_t> bytes) {
  std::array<std::uint64_t, 2> numbers = {static_cast<std::uint64_t>(header.index), header.length};
  const uLong of_header = crc32_z(0, reinterpret_cast<const Bytef*>(numbers.data()), sizeof numbers);
  return crc32_z(of_header, bytes.data(), bytes.size());
}

/// What is wrong with an entry; empty: nothing.
std::string damage(const Header& header, std::int64_t index, const DiskLevel::Bytes& bytes) {
  if (header.magic != plain_magic && header.magic != packed_magic)
    return "it does not begin as an entry does";
  if (header.index != index) return "it says that it is sample " + std::to_string(header.index);
  if (header.length != bytes.size())
    return "it has " + std::to_string(bytes.size()) + " bytes, and says " + std::to_string(header.length);
  if (header.checksum != checksum(header, bytes)) return "its bytes do not match their checksum";
  return {};
}

/// The content of a file; nothing where it cannot be read, and errno says why.
bool read(const fs::path& path, Header& header, DiskLevel::Bytes& bytes) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return false;
  const std::streamoff size = file.tellg();
  file.seekg(0);
  header.magic = {};
  if (size < static_cast<std::streamoff>(sizeof header)) return true;
  file.read(reinterpret_cast<char*>(&header), sizeof header);
  bytes.resize(static_cast<std::size_t>(size) - sizeof header);
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return file.good();
}

bool write(const fs::path& path, const Header& header, std::span<const std::uint8_t> bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(&header), sizeof header);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  file.close();
  return file.good();
}

/// Returns the content of an entry that a codec packed; nothing of no code.
DiskLevel::Bytes entry_of(const std::string& codec, const DiskLevel::Bytes& code, std::uint64_t length) {
  if (code.empty()) return {};
  DiskLevel::Bytes content(sizeof length + 1 + codec.size() + code.size());
  std::memcpy(content.data(), &length, sizeof length);
  content[sizeof length] = static_cast<std::uint8_t>(codec.size());
  const auto name = content.begin() + sizeof length + 1;
  std::ranges::copy(code, std::ranges::copy(codec, name).out);
  return content;
}

bool is_name(const std::string& text) {
  return !text.empty() &&
         std::ranges::all_of(text, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

bool is_name_of_source(const std::string& name) {
  return name.size() == 64 &&
         std::ranges::all_of(name, [](unsigned char c) { return std::isxdigit(c) != 0; });
}

}  // namespace

DiskLevel::DiskLevel(const std::string& folder, const std::string& source, const Packing& packing, Warn warn)
    : folder_(fs::path(folder) / source), packing_(packing), warn_(std::move(warn)) {
  std::error_code unreadable;  // told where an entry is written
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, unreadable))
    if (const std::string name = entry.path().filename(); !is_name_of_source(name))
      throw trainyard::ConfigError("disk: \"" + folder + "\" has \"" + name +
                                   "\", which no cache wrote: give a folder that caches alone use");
}

fs::path DiskLevel::path(std::int64_t index) const {
  return folder_ / std::to_string(index / files_a_folder) / std::to_string(index);
}

std::optional<DiskLevel::Bytes> DiskLevel::get(std::int64_t index) const {
  const fs::path file = path(index);
  Header header;
  Bytes bytes;
  errno = 0;
  const bool whole = read(file, header, bytes);
  const int reason = errno;
  if (!whole && (reason == ENOENT || reason == ENOTDIR)) return std::nullopt;
  std::string found =
      whole ? damage(header, index, bytes) : "it cannot be read (" + std::string(std::strerror(reason)) + ")";
  if (found.empty() && header.magic == plain_magic) return bytes;
  if (found.empty()) {
    std::optional<Bytes> sample = unpack(bytes, found);
    if (found.empty()) return sample;
  }
  warn_("the entry " + file.string() + " is damaged: " + found + "; the sample is fetched again");
  return std::nullopt;
}

/// Returns the bytes of a packed entry, whose checksum is right; nothing where its codec is not there, or, with
/// `damage`, where it is no code.
std::optional<DiskLevel::Bytes> DiskLevel::unpack(const Bytes& content, std::string& damage) const {
  std::uint64_t length = 0;
  constexpr std::size_t name_at = sizeof length + 1;
  const std::size_t code_at = content.size() < name_at ? content.size() + 1 : name_at + content[name_at - 1];
  if (code_at > content.size()) {
    damage = "it ends ahead of its code";
    return std::nullopt;
  }
  std::memcpy(&length, content.data(), sizeof length);
  const std::string codec(content.begin() + name_at, content.begin() + static_cast<std::ptrdiff_t>(code_at));
  if (!is_name(codec) || length > most_bytes) {
    damage = "it names no codec, or a sample of " + std::to_string(length) + " bytes";
    return std::nullopt;
  }
  if (!packing_.reads(codec)) {
    const std::lock_guard lock(told_access_);
    if (told_.insert(codec).second)
      warn_("entries of " + folder_.string() + " were packed by the codec \"" + codec +
            "\", which `codec` does not name: their samples are fetched again, and written as `codec` says "
            "now; to read "
            "them, add { type = \"" +
            codec + "\" } to `codec` behind the one that packs (its plugin is lib" + codec +
            ".so, of the kind codec)");
    return std::nullopt;
  }
  try {
    return packing_.unpack(codec, std::span(content).subspan(code_at), length);
  } catch (const trainyard::DataError& error) {
    damage = error.what();
    return std::nullopt;
  }
}

void DiskLevel::put(std::int64_t index, std::span<const std::uint8_t> bytes) {
  if (!writes_) return;
  static std::atomic<std::uint64_t> number{0};
  const fs::path file = path(index);
  // A name of its own: another thread, or process, may write the same entry.
  const fs::path beside = file.string() + "." + std::to_string(::getpid()) + "." + std::to_string(number++);
  const Bytes packed_bytes = entry_of(packing_.name(), packing_.pack(bytes), bytes.size());
  const bool shorter = !packed_bytes.empty() && packed_bytes.size() < bytes.size();
  const std::span<const std::uint8_t> content = shorter ? packed_bytes : bytes;
  Header header{.magic = shorter ? packed_magic : plain_magic, .index = index, .length = content.size()};
  header.checksum = checksum(header, content);
  errno = 0;
  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  if (!error && !write(beside, header, content))
    error.assign(errno != 0 ? errno : EIO, std::generic_category());
  if (!error) fs::rename(beside, file, error);
  if (!error) {
    bytes_ += static_cast<std::int64_t>(bytes.size());
    stored_ += static_cast<std::int64_t>(content.size());
    return;
  }
  std::error_code ignored;
  fs::remove(beside, ignored);
  if (writes_.exchange(false))
    warn_("cannot write " + file.string() + ": " + error.message() +
          "; from here on samples are kept on the disk no more: make room, or give `disk` another folder");
}

}  // namespace cache
