#include "kept.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <ATen/ops/from_blob.h>

#include <trainyard/error.hpp>

namespace graph {
namespace {

using namespace trainyard;

constexpr std::array<char, 8> magic = {'t', 'y', 'g', 'r', 'a', 'p', 'h', '1'};
constexpr std::array split_names = {"train", "val", "test"};

/// Ahead of the parts: name, rowptr, col, features, labels and the nodes of the splits, each from a multiple
/// of 64 bytes on. Numbers have the byte order of the machine.
struct Header {
  std::array<char, 8> mark = magic;
  std::uint32_t crc = 0;  ///< of all that follows
  std::uint32_t col_bytes = 4, feature_bytes = 4, name_bytes = 0;
  std::int64_t nodes = 0, edges = 0, width = 0, classes = 0;
  std::array<std::int64_t, split_names.size()> seeds{};

  std::array<std::size_t, 8> parts() const {
    const auto bytes = [](std::int64_t count, std::size_t each) {
      return static_cast<std::size_t>(count) * each;
    };
    return {
        name_bytes,      bytes(nodes + 1, 8), bytes(edges, col_bytes), bytes(nodes * width, feature_bytes),
        bytes(nodes, 8), bytes(seeds[0], 8),  bytes(seeds[1], 8),      bytes(seeds[2], 8)};
  }
};
constexpr std::size_t crc_from = offsetof(Header, crc) + sizeof(Header::crc);

std::size_t padded(std::size_t size) {
  return (size + 63) / 64 * 64;
}

[[noreturn]] void fail_damaged(const std::string& file) {
  throw DataError(file + ": the kept graph is damaged: remove the file, to have it made anew");
}

/// A file in memory that is not written to.
class Mapping {
 public:
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

std::shared_ptr<const Mapping> map_file(const std::string& file) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT) return nullptr;
  struct stat status {};
  const bool sized = fd >= 0 && ::fstat(fd, &status) == 0;
  std::shared_ptr<const Mapping> mapping;
  if (sized && status.st_size >= static_cast<off_t>(sizeof(Header)))
    mapping = std::make_shared<const Mapping>(fd, static_cast<std::size_t>(status.st_size));
  const int error = errno;
  if (fd >= 0) ::close(fd);
  if (!sized || (mapping && !mapping->good())) throw DataError(file + ": " + std::strerror(error));
  if (!mapping) fail_damaged(file);
  return mapping;
}

template <class T>
std::span<const T> view(const std::uint8_t* begin, std::size_t bytes) {
  return {reinterpret_cast<const T*>(begin), bytes / sizeof(T)};
}

/// Where each part begins, and the end of the last.
std::array<std::size_t, 9> places_of(const std::array<std::size_t, 8>& parts) {
  std::array<std::size_t, 9> places{padded(sizeof(Header))};
  for (std::size_t i = 0; i < parts.size(); ++i) places[i + 1] = places[i] + padded(parts[i]);
  return places;
}

}  // namespace

std::string kept_file(const std::string& folder, const std::string& name) {
  std::uint64_t hash = 0xCBF29CE484222325;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(hash));
  return folder + "/" + text.data() + ".graph";
}

std::optional<NodeGraph> map_kept(const std::string& file, const std::string& name) {
  const std::shared_ptr<const Mapping> mapping = map_file(file);
  if (!mapping) return std::nullopt;
  const std::uint8_t* bytes = mapping->data();
  Header header;
  std::memcpy(&header, bytes, sizeof header);
  const auto crc = static_cast<std::uint32_t>(crc32_z(0, bytes + crc_from, mapping->size() - crc_from));
  if (header.mark != magic || crc != header.crc) fail_damaged(file);
  const auto parts = header.parts();
  const auto places = places_of(parts);
  if (std::string_view(reinterpret_cast<const char*>(bytes) + places[0], parts[0]) != name)
    return std::nullopt;

  NodeGraph graph;
  graph.csr.rowptr = view<std::int64_t>(bytes + places[1], parts[1]);
  if (header.col_bytes == 4)
    graph.csr.col = view<std::int32_t>(bytes + places[2], parts[2]);
  else
    graph.csr.col = view<std::int64_t>(bytes + places[2], parts[2]);
  graph.csr.owner = mapping;
  // Nobody writes to features.
  graph.features = at::from_blob(
      const_cast<std::uint8_t*>(bytes) + places[3], {header.nodes, header.width}, [mapping](void*) {},
      header.feature_bytes == 2 ? at::kHalf : at::kFloat);
  const auto labels = view<std::int64_t>(bytes + places[4], parts[4]);
  graph.labels.assign(labels.begin(), labels.end());
  graph.classes = header.classes;
  for (std::size_t i = 0; i < split_names.size(); ++i) {
    const auto seeds = view<std::int64_t>(bytes + places[5 + i], parts[5 + i]);
    graph.splits[split_names[i]].assign(seeds.begin(), seeds.end());
  }
  return graph;
}

void keep(const std::string& file, const std::string& name, const NodeGraph& graph) {
  Header header;
  header.nodes = graph.csr.nodes();
  header.edges = graph.csr.edges();
  header.width = graph.features.size(1);
  header.classes = graph.classes;
  header.feature_bytes = static_cast<std::uint32_t>(graph.features.element_size());
  header.name_bytes = static_cast<std::uint32_t>(name.size());
  const void* col = std::visit(
      [&](const auto& span) -> const void* {
        header.col_bytes = sizeof(span[0]);
        return span.data();
      },
      graph.csr.col);
  std::array<const void*, 8> data = {name.data(), graph.csr.rowptr.data(), col,
                                     graph.features.const_data_ptr(), graph.labels.data()};
  for (std::size_t i = 0; i < split_names.size(); ++i)
    if (const auto split = graph.splits.find(split_names[i]); split != graph.splits.end()) {
      header.seeds[i] = static_cast<std::int64_t>(split->second.size());
      data[5 + i] = split->second.data();
    }

  const std::string writing = file + "." + std::to_string(::getpid());
  std::ofstream out(writing, std::ios::binary);
  uLong crc = 0;
  const auto write = [&](const void* from, std::size_t size, std::size_t skipped = 0) {
    constexpr std::array<char, 64> zeros{};
    const std::size_t padding = padded(size) - size;
    crc = crc32_z(crc, static_cast<const Bytef*>(from) + skipped, size - skipped);
    crc = crc32_z(crc, reinterpret_cast<const Bytef*>(zeros.data()), padding);
    out.write(static_cast<const char*>(from), static_cast<std::streamsize>(size));
    out.write(zeros.data(), static_cast<std::streamsize>(padding));
  };
  write(&header, sizeof header, crc_from);
  const auto parts = header.parts();
  for (std::size_t i = 0; i < parts.size(); ++i)
    if (parts[i] > 0) write(data[i], parts[i]);
  header.crc = static_cast<std::uint32_t>(crc);
  out.seekp(0);
  out.write(reinterpret_cast<const char*>(&header), sizeof header);
  out.close();
  std::error_code error;
  if (out) std::filesystem::rename(writing, file, error);
  if (!out || error) {
    const std::string reason = error ? error.message() : std::strerror(errno);
    std::filesystem::remove(writing, error);
    throw DataError(file + ": the graph cannot be kept: " + reason + "; make room, or leave keep_in out");
  }
}

}  // namespace graph
