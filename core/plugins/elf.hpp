// Reads what the host must know of a shared object before any of its code runs. The file may be broken or
// hostile: every offset and size is checked against the file before use, and nothing is mapped (loader-facts
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

#include "lib/descriptor.hpp"

namespace trainyard::plugins {

class ElfFile {
 public:
  /// Opens a 64-bit little-endian shared object for this machine. Throws PluginError, without the path, for
  /// anything else.
  explicit ElfFile(const std::string& path);

  /// Returns the bytes of a section; nothing where there is none of that name. Throws PluginError if it is
  /// larger than `limit` or extends beyond the file.
  std::optional<std::string> section(std::string_view name, std::size_t limit) const;

  /// Returns the SHA-256 of the bytes that the loader maps (PT_LOAD), without the ELF header, which sealing
  /// and stripping change: both leave it as it was.
  std::string digest() const;

  /// Returns the names of the symbols that others can bind to; nothing without section headers.
  std::vector<std::string> exported_symbols() const;

  /// Returns the names of the exported GNU_UNIQUE symbols: each process has one copy of each, shared by all
  /// plugins and all generations of one plugin (P1, P11).
  std::vector<std::string> unique_symbols() const;

  /// Returns the number of functions that run when the object is opened. 1 is the runtime's own; the rest
  /// initialise statics of this object or of headers it includes (P17).
  std::size_t initialisers() const;

  /// Returns the names under a tag of the dynamic section: DT_NEEDED, libraries loaded with it; DT_RUNPATH
  /// and DT_RPATH, where they are searched before the usual places. Nothing without section headers.
  std::vector<std::string> dynamic_names(Elf64_Sxword tag) const;

  /// Identifies the file, however its path is spelled.
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

  lib::Descriptor descriptor_;
  std::uint64_t size_ = 0;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  std::vector<Elf64_Phdr> segments_;
  std::vector<Elf64_Shdr> sections_;
  std::size_t names_section_ = 0;  ///< index of the section that holds the sections' names
};

}  // namespace trainyard::plugins
