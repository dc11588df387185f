#include "core/rundir/data_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include <trainyard/error.hpp>

#include "lib/sha256.hpp"

namespace trainyard::report {
namespace {

namespace fs = std::filesystem;

std::string identity_of(const std::string& path) try {
  constexpr std::uintmax_t pieces = 64, length = 1 << 20;
  std::map<fs::path, std::uintmax_t> files;  // sizes by path
  const bool folder = fs::is_directory(path);
  if (!folder) files.emplace(path, fs::file_size(path));
  if (folder)
    for (const fs::directory_entry& each :
         fs::recursive_directory_iterator(path, fs::directory_options::follow_directory_symlink))
      if (each.is_regular_file()) files.emplace(each.path(), each.file_size());
  lib::Sha256 hash;
  std::uintmax_t size = 0, begin = 0;  // total size; offset of the file being read within all bytes
  for (const auto& [file, bytes] : files) {
    size += bytes;
    const std::string line = file.lexically_relative(path).string() + " " + std::to_string(bytes) + "\n";
    if (folder) hash.update(line.data(), line.size());
  }
  // The step is rounded up so that the last piece reaches the last byte.
  const std::uintmax_t step = size > pieces * length ? (size - length + pieces - 2) / (pieces - 1) : length;
  std::string piece(length, '\0');
  for (const auto& [file, bytes] : files) {
    for (std::uintmax_t at = begin / step * step; at < begin + bytes; at += step) {
      const std::uintmax_t from = std::max(at, begin), to = std::min(at + length, begin + bytes);
      if (from >= to) continue;  // the file lies between two pieces
      std::ifstream stream(file, std::ios::binary);
      stream.seekg(static_cast<std::streamoff>(from - begin));
      if (!stream.read(piece.data(), static_cast<std::streamsize>(to - from)))
        throw DataError(file.string() + ": " + std::strerror(errno));
      hash.update(piece.data(), to - from);
    }
    begin += bytes;
  }
  return (folder ? std::to_string(files.size()) + " files of " : "") + std::to_string(size) +
         " bytes, SHA-256 " + hash.hex();
} catch (const fs::filesystem_error& error) {
  throw DataError(path + ": " + error.code().message());
}

}  // namespace

Facts file_identities(const std::vector<OptionSpec>& specs, const Table& options,
                      const plugins::Registry& registry, const std::vector<std::string>& kept,
                      const std::string& prefix) {
  Facts facts;
  for (const OptionSpec& spec : specs) {
    const Value* const value = options.find(spec.name);
    if (value == nullptr || std::ranges::find(kept, prefix + spec.name) != kept.end()) continue;
    const Array all = spec.list ? value->as<Array>() : Array{*value};
    for (std::size_t i = 0; i < all.size() && (spec.file || !spec.plugins.empty()); ++i) {
      const std::string name = prefix + spec.name + (spec.list ? "[" + std::to_string(i) + "]" : "");
      if (spec.file && !all[i].as<std::string>().empty())
        facts.emplace_back(name, identity_of(all[i].as<std::string>()));
      if (spec.file) continue;
      const Table& table = all[i].as<Table>();
      for (const auto* file : registry.find(spec.plugins, table.find("type")->as<std::string>()))
        std::ranges::move(file_identities(file->manifest.options, table, registry, kept, name + "."),
                          std::back_inserter(facts));
    }
  }
  return facts;
}

std::string difference(const std::string& here, const std::string& there, const std::string& other) {
  const Facts own = nlohmann::json::parse(here), others = nlohmann::json::parse(there);
  const auto value = [](const Facts& facts, const std::string& fact) {
    const auto found = std::ranges::find(facts, fact, &Facts::value_type::first);
    return found == facts.end() ? "nothing" : found->second;
  };
  for (const Facts* facts : {&own, &others})
    for (const auto& [fact, any] : *facts)
      if (value(own, fact) != value(others, fact))
        return fact + " (" + value(own, fact) + ", on " + other + " " + value(others, fact) + ")";
  return {};
}

}  // namespace trainyard::report
