// Files that a test makes for itself, and real data where the machine has it.
#pragma once

#include <zlib.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include <catch2/catch.hpp>

#include "support/folder.hpp"

namespace trainyard::test {

class TempFolder : public Folder {
 public:
  std::string path(const std::string& name) const { return *this / name; }

  /// Writes a file and gives its path; packed by gzip where the name ends in .gz.
  std::string write(const std::string& name, const std::string& content) const {
    if (!name.ends_with(".gz")) return Folder::write(name, content);
    std::string file = path(name);
    gzFile out = gzopen(file.c_str(), "wb");
    gzwrite(out, content.data(), static_cast<unsigned>(content.size()));
    gzclose(out);
    return file;
  }

  /// A copy of a file without its last bytes.
  std::string truncate(const std::string& file, std::uintmax_t bytes_kept) const {
    std::string copy = path("cut-" + std::filesystem::path(file).filename().string());
    std::filesystem::copy_file(file, copy, std::filesystem::copy_options::overwrite_existing);
    std::filesystem::resize_file(copy, bytes_kept);
    return copy;
  }
};

/// A file of the real data (TRAINYARD_DATA, else shared/data beside the source); empty, with a warning, where
/// it is absent: the test should return.
inline std::string real_data(const std::string& name) {
  const char* folder = std::getenv("TRAINYARD_DATA");
  const std::string base = folder ? folder : std::string(TRAINYARD_SOURCE_DIR) + "/../shared/data";
  std::string file = base + "/" + name;
  if (std::filesystem::exists(file)) return file;
  WARN("skipped: no " << file << " (set TRAINYARD_DATA to the folder of the real data)");
  return {};
}

/// The message of the Error that `call` throws; fails the test where it throws none of that class.
template <class Expected, class Call>
std::string message_of(Call&& call) {
  try {
    call();
  } catch (const Expected& error) {
    return error.what();
  } catch (const std::exception& error) {
    FAIL("another exception: " << error.what());
  }
  FAIL("no exception");
  return {};
}

}  // namespace trainyard::test
