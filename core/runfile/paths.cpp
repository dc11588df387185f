#include "core/runfile/paths.hpp"

#include <filesystem>

namespace trainyard::config {

std::string absolute_path(const std::string& path, const Origin& written) {
  if (path.empty()) return path;
  std::filesystem::path full = path;
  if (full.is_relative() && written.file != nullptr && *written.file != "--set")
    full = std::filesystem::path(*written.file).parent_path() / full;
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(full, error);
  return (error ? full : absolute).lexically_normal().string();
}

const char* no_file(const std::string& path) {
  std::error_code error;
  switch (std::filesystem::status(path, error).type()) {
    case std::filesystem::file_type::directory: return "a folder";
    case std::filesystem::file_type::fifo: return "a pipe";
    case std::filesystem::file_type::socket: return "a socket";
    case std::filesystem::file_type::block:
    case std::filesystem::file_type::character: return "a device";
    default: return nullptr;
  }
}

}  // namespace trainyard::config
