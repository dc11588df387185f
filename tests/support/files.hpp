// Files that a test makes for itself, and real data where the machine has it.
#pragma once

#include <unistd.h>
#include <zlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include <catch2/catch.hpp>

namespace trainyard::test {

/// A folder that goes with the object.
class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "trainyard-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder " + name);
    path_ = name;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string path(const std::string& name) const { return (path_ / name).string(); }

  /// Writes a file and gives its path; packed by gzip where the name ends in .gz.
  std::string write(const std::string& name, const std::string& content) const {
    std::string file = path(name);
    if (!file.ends_with(".gz")) {
      std::ofstream(file, std::ios::binary) << content;
      return file;
    }
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

 private:
  std::filesystem::path path_;
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
