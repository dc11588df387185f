// Reads what the host must know of a shared object before any of it runs. The file may be broken or hostile:
// every offset and size is checked against the file before it is used, and nothing is mapped (loader-facts
// P8, P9).
#pragma once

#include <elf.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainyard::plugins {

class ElfFile {
 public:
  /// Opens a 64-bit little-endian shared object of this machine's kind. Throws PluginError, without the path,
  /// where it is anything else.
  explicit ElfFile(const std::string& path);
  ~ElfFile();
  ElfFile(const ElfFile&) = delete;
  ElfFile& operator=(const ElfFile&) = delete;

  /// The bytes of a section; nothing where there is none of that name. Throws PluginError where it is larger
  /// than `limit` or stands outside the file.
  std::optional<std::string> section(std::string_view name, std::size_t limit) const;

  /// SHA-256 over the bytes that the loader maps (PT_LOAD), without the ELF header, which sealing and
  /// stripping change: equal before and after both.
  std::string digest() const;

  /// Names of the symbols that others can bind to; nothing where the file has no section headers.
  std::vector<std::string> exported_symbols() const;

  /// Names of the exported GNU_UNIQUE symbols: one copy of each per process, shared by all plugins and by all
  /// generations of one plugin (P1, P11).
  std::vector<std::string> unique_symbols() const;

  /// Functions that run when the object is opened. 1 is the runtime's own; the rest are initialisers of
  /// statics, of this object's or of headers it includes (P17).
  std::size_t initialisers() const;

  /// What the dynamic section names: DT_NEEDED, the libraries that are loaded with it; DT_RUNPATH and DT_RPATH, where
  /// they are looked for ahead of the usual places. Nothing where the file has no section headers.
  std::vector<std::string> dynamic_names(Elf64_Sxword tag) const;

  /// Which file this is, however it is spelled.
  dev_t device() const { return device_; }
  ino_t inode() const { return inode_; }

 private:
  void read_exactly(void* target, std::uint64_t size, std::uint64_t offset, const char* what) const;
  std::string read(std::uint64_t size, std::uint64_t offset, std::uint64_t limit, const char* what) const;
  template <class Record>
  std::vector<Record> read_records(std::uint64_t bytes, std::uint64_t offset, std::uint64_t limit,
                                   const char* what) const;
  void read_headers();
  std::vector<std::string> symbols_where(bool (*wanted)(const Elf64_Sym&)) const;
  std::string strings_of(const Elf64_Shdr& section, const char* what) const;

  int descriptor_ = -1;
  std::uint64_t size_ = 0;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  std::vector<Elf64_Phdr> segments_;
  std::vector<Elf64_Shdr> sections_;
  std::size_t names_section_ = 0;  ///< the one that holds the sections' names
};

}  // namespace trainyard::plugins
