#include "core/plugins/elf.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <trainyard/error.hpp>

#include "lib/sha256.hpp"

namespace trainyard::plugins {
namespace {

// These limits are far above what a linker writes for a plugin, and far below what would cost memory or time.
constexpr std::uint64_t max_segments = 64;
constexpr std::uint64_t max_sections = 4096;
constexpr std::uint64_t max_names = 1 << 20;
constexpr std::uint64_t max_dynamic = 1 << 16;
constexpr std::uint64_t max_symbols = 64 << 20;

#if defined(__x86_64__)
constexpr Elf64_Half host_machine = EM_X86_64;
#elif defined(__aarch64__)
constexpr Elf64_Half host_machine = EM_AARCH64;
#else
#error "name this machine's EM_ constant"
#endif

std::string system_error() {
  return std::strerror(errno);
}

}  // namespace

ElfFile::ElfFile(const std::string& path) {
  // O_NONBLOCK: a named pipe called lib*.so must not hang the scan.
  descriptor_ = lib::Descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!descriptor_) throw PluginError("cannot be opened: " + system_error());
  struct stat status;
  if (::fstat(descriptor_.get(), &status) != 0) throw PluginError("cannot be read: " + system_error());
  if (!S_ISREG(status.st_mode)) throw PluginError("is not a regular file");
  size_ = static_cast<std::uint64_t>(status.st_size);
  device_ = status.st_dev;
  inode_ = status.st_ino;
  read_headers();
}

void ElfFile::read_headers() {
  Elf64_Ehdr header;
  if (size_ < sizeof header)
    throw PluginError("is not a shared object: " + std::to_string(size_) + " bytes, an ELF header has 64");
  read_exactly(&header, sizeof header, 0, "ELF header");
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
    throw PluginError("is not a shared object: it does not begin with the ELF magic number");
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
      header.e_ident[EI_VERSION] != EV_CURRENT || header.e_version != EV_CURRENT)
    throw PluginError("is not a 64-bit little-endian ELF file of version 1");
  if (header.e_machine != host_machine)
    throw PluginError("is built for another machine: ELF machine " + std::to_string(header.e_machine) +
                      ", this one is " + std::to_string(host_machine) + "; build the plugin on this machine");
  if (header.e_type != ET_DYN)
    throw PluginError("is not a shared object: ELF type " + std::to_string(header.e_type) +
                      ", a shared object has 3");
  if (header.e_ehsize != sizeof(Elf64_Ehdr) || header.e_phentsize != sizeof(Elf64_Phdr))
    throw PluginError("is damaged: its ELF header gives wrong record sizes");
  if (header.e_phnum == 0) throw PluginError("is damaged: it has no program headers");
  segments_ = read_records<Elf64_Phdr>(header.e_phnum * sizeof(Elf64_Phdr), header.e_phoff,
                                       max_segments * sizeof(Elf64_Phdr), "program headers");
  if (header.e_shnum == 0) return;  // stripped of section headers: no manifest, which section() reports
  if (header.e_shentsize != sizeof(Elf64_Shdr))
    throw PluginError("is damaged: its ELF header gives wrong record sizes");
  if (header.e_shstrndx >= header.e_shnum)
    throw PluginError("is damaged: section " + std::to_string(header.e_shstrndx) +
                      " should hold names, there are " + std::to_string(header.e_shnum));
  sections_ = read_records<Elf64_Shdr>(header.e_shnum * sizeof(Elf64_Shdr), header.e_shoff,
                                       max_sections * sizeof(Elf64_Shdr), "section headers");
  names_section_ = header.e_shstrndx;
}

void ElfFile::read_exactly(void* target, std::uint64_t size, std::uint64_t offset, const char* what) const {
  if (offset > size_ || size > size_ - offset)
    throw PluginError("is truncated or damaged: its " + std::string(what) + " should stand at bytes " +
                      std::to_string(offset) + " + " + std::to_string(size) + ", the file has " +
                      std::to_string(size_));
  auto* bytes = static_cast<char*>(target);
  while (size > 0) {
    const ssize_t count = ::pread(descriptor_.get(), bytes, size, static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw PluginError("cannot be read: " + system_error());
    if (count == 0) throw PluginError("became shorter while it was read");
    bytes += count;
    size -= static_cast<std::uint64_t>(count);
    offset += static_cast<std::uint64_t>(count);
  }
}

std::string ElfFile::read(std::uint64_t size, std::uint64_t offset, std::uint64_t limit,
                          const char* what) const {
  const auto bytes = read_records<char>(size, offset, limit, what);
  return {bytes.begin(), bytes.end()};
}

template <class Record>
std::vector<Record> ElfFile::read_records(std::uint64_t bytes, std::uint64_t offset, std::uint64_t limit,
                                          const char* what) const {
  if (bytes > limit)
    throw PluginError("is damaged: its " + std::string(what) + " would take " + std::to_string(bytes) +
                      " bytes, at most " + std::to_string(limit) + " make sense");
  // Rejects a size beyond the file before memory is allocated.
  if (offset > size_ || bytes > size_ - offset) read_exactly(nullptr, bytes, offset, what);
  std::vector<Record> records(bytes / sizeof(Record));
  read_exactly(records.data(), records.size() * sizeof(Record), offset, what);
  return records;
}

std::optional<std::string> ElfFile::section(std::string_view name, std::size_t limit) const {
  if (sections_.empty()) return std::nullopt;
  const Elf64_Shdr& strings = sections_[names_section_];
  const std::string names = read(strings.sh_size, strings.sh_offset, max_names, "section names");
  for (const Elf64_Shdr& section : sections_) {
    // The comparison includes the terminating zero, so that ".trainyard2" does not match.
    if (section.sh_name >= names.size() || section.sh_type == SHT_NOBITS) continue;
    if (names.compare(section.sh_name, name.size() + 1, std::string(name) + '\0') != 0) continue;
    return read(section.sh_size, section.sh_offset, limit, "manifest section");
  }
  return std::nullopt;
}

std::string ElfFile::digest() const {
  lib::Sha256 hash;
  std::vector<char> buffer(1 << 16);
  std::uint64_t done = sizeof(Elf64_Ehdr);
  bool loadable = false;
  for (const Elf64_Phdr& segment : segments_) {
    if (segment.p_type != PT_LOAD || segment.p_filesz == 0) continue;
    loadable = true;
    if (segment.p_offset > size_ || segment.p_filesz > size_ - segment.p_offset)
      throw PluginError("is truncated or damaged: a loadable segment ends after byte " +
                        std::to_string(size_) + ", the last of the file");
    // Linkers write segments in order and apart, so the work is bounded by the size of the file.
    std::uint64_t at = std::max<std::uint64_t>(segment.p_offset, sizeof(Elf64_Ehdr));
    const std::uint64_t end = segment.p_offset + segment.p_filesz;
    if (at < done) throw PluginError("is damaged: its loadable segments overlap");
    while (at < end) {
      const std::uint64_t count = std::min<std::uint64_t>(buffer.size(), end - at);
      read_exactly(buffer.data(), count, at, "loadable segment");
      hash.update(buffer.data(), count);
      at += count;
    }
    done = std::max(done, end);
  }
  if (!loadable) throw PluginError("is damaged: it has no loadable segment");
  return hash.hex();
}

std::string ElfFile::strings_of(const Elf64_Shdr& section, const char* what) const {
  if (section.sh_link >= sections_.size())
    throw PluginError("is damaged: its " + std::string(what) + " have no names");
  const Elf64_Shdr& strings = sections_[section.sh_link];
  return read(strings.sh_size, strings.sh_offset, max_symbols, what);
}

std::vector<std::string> ElfFile::symbols_where(bool (*wanted)(const Elf64_Sym&)) const {
  std::vector<std::string> found;
  for (const Elf64_Shdr& section : sections_) {
    if (section.sh_type != SHT_DYNSYM) continue;
    const auto symbols =
        read_records<Elf64_Sym>(section.sh_size, section.sh_offset, max_symbols, "dynamic symbols");
    const std::string names = strings_of(section, "dynamic symbols");
    for (const Elf64_Sym& symbol : symbols)
      if (symbol.st_shndx != SHN_UNDEF && wanted(symbol) && symbol.st_name < names.size())
        found.emplace_back(names.c_str() + symbol.st_name);
    break;
  }
  return found;
}

std::vector<std::string> ElfFile::exported_symbols() const {
  return symbols_where([](const Elf64_Sym& symbol) {
    const auto visibility = ELF64_ST_VISIBILITY(symbol.st_other);
    return ELF64_ST_BIND(symbol.st_info) != STB_LOCAL &&
           (visibility == STV_DEFAULT || visibility == STV_PROTECTED);
  });
}

std::vector<std::string> ElfFile::unique_symbols() const {
  return symbols_where(
      [](const Elf64_Sym& symbol) { return ELF64_ST_BIND(symbol.st_info) == STB_GNU_UNIQUE; });
}

std::vector<std::string> ElfFile::dynamic_names(Elf64_Sxword tag) const {
  std::vector<std::string> found;
  for (const Elf64_Shdr& section : sections_) {
    if (section.sh_type != SHT_DYNAMIC) continue;
    const std::string names = strings_of(section, "needed libraries");
    for (const Elf64_Dyn& entry :
         read_records<Elf64_Dyn>(section.sh_size, section.sh_offset, max_dynamic, "dynamic section")) {
      if (entry.d_tag == DT_NULL) break;
      if (entry.d_tag == tag && entry.d_un.d_val < names.size())
        found.emplace_back(names.c_str() + entry.d_un.d_val);
    }
    break;
  }
  return found;
}

std::size_t ElfFile::initialisers() const {
  for (const Elf64_Phdr& segment : segments_) {
    if (segment.p_type != PT_DYNAMIC) continue;
    for (const Elf64_Dyn& entry :
         read_records<Elf64_Dyn>(segment.p_filesz, segment.p_offset, max_dynamic, "dynamic section")) {
      if (entry.d_tag == DT_NULL) break;
      if (entry.d_tag == DT_INIT_ARRAYSZ) return entry.d_un.d_val / sizeof(void*);
    }
  }
  return 0;
}

}  // namespace trainyard::plugins
