#include "core/rundir/data_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <trainyard/error.hpp>

#include "core/plugins/sha256.hpp"

namespace trainyard::report {
namespace {

std::string identity_of(const std::string& path) {
  constexpr std::streamoff pieces = 64, length = 1 << 20;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file.tellg();
  const std::streamoff step = size > pieces * length ? (size - length) / (pieces - 1) : length;
  plugins::Sha256 hash;
  std::string piece(length, '\0');
  for (std::streamoff at = 0; at < size; at += step) {
    file.seekg(at);
    file.read(piece.data(), std::min(length, size - at));
    hash.update(piece.data(), static_cast<std::size_t>(file.gcount()));
  }
  if (!file) throw DataError(path + ": " + std::strerror(errno));
  return std::to_string(size) + " bytes, SHA-256 " + hash.hex();
}

}  // namespace

std::vector<std::pair<std::string, std::string>> file_identities(const ManifestData& manifest,
                                                                 const Table& options) {
  std::vector<std::pair<std::string, std::string>> files;
  for (const OptionSpec& option : manifest.options) {
    const Value* const value = option.file ? options.find(option.name) : nullptr;
    if (value == nullptr) continue;
    for (const Value& each : option.list ? value->as<Array>() : Array{*value}) {
      const auto& path = each.as<std::string>();
      std::error_code error;
      if (!std::filesystem::is_regular_file(path, error)) continue;
      const std::string place = option.list ? "[" + std::to_string(files.size()) + "]" : "";
      files.emplace_back(option.name + place, identity_of(path));
    }
  }
  return files;
}

}  // namespace trainyard::report
