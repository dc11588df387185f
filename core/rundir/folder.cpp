#include "core/rundir/folder.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <fcntl.h>
#include <unistd.h>

#include <trainyard/error.hpp>

#include "core/rundir/checked_file.hpp"
#include "core/rundir/run_directory.hpp"

namespace trainyard::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view prefix = "step-";
constexpr std::uintmax_t longest_manifest = 256 << 20;

[[noreturn]] void fail(const std::string& what) {
  throw DataError(what + ": " + std::strerror(errno));
}

/// Drops a trailing slash: "RUN/checkpoints/step-00000600/" means the same as without it.
std::string without_slash(const std::string& path) {
  return path.size() > 1 && path.back() == '/' ? path.substr(0, path.size() - 1) : path;
}

/// Does what find() does, but returns an empty list where there is no checkpoint.
std::vector<std::string> all_in(const std::string& plain) {
  if (step_of(plain) || fs::exists(plain + "/" + manifest_name)) return {plain};
  for (const std::string& folder : {plain + "/checkpoints", plain})
    if (std::vector<std::string> found = list(folder); !found.empty()) return found;
  return {};
}

}  // namespace

std::string folder_name(std::int64_t step) {
  char name[32];
  std::snprintf(name, sizeof name, "step-%08lld", static_cast<long long>(step));
  return name;
}

std::optional<std::int64_t> step_of(const std::string& checkpoint) {
  const std::string name = fs::path(checkpoint).filename().string();
  if (!name.starts_with(prefix)) return std::nullopt;
  std::int64_t step = 0;
  std::from_chars(name.data() + prefix.size(), name.data() + name.size(), step);
  if (step < 0 || folder_name(step) != name) return std::nullopt;
  return step;
}

std::vector<std::string> list(const std::string& folder) {
  std::vector<std::string> checkpoints;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored))
    if (entry.is_directory(ignored) && step_of(entry.path().string()))
      checkpoints.push_back(entry.path().string());
  std::sort(checkpoints.begin(), checkpoints.end(),
            [](const std::string& a, const std::string& b) { return *step_of(a) < *step_of(b); });
  return checkpoints;
}

std::vector<std::string> find(const std::string& path) {
  const std::string plain = without_slash(path);
  if (std::vector<std::string> found = all_in(plain); !found.empty()) return found;
  throw DataError(plain +
                  ": no checkpoint there; expected a run's directory with checkpoints/step-*, a folder with "
                  "step-*, or one such folder");
}

std::optional<std::string> best(const std::string& path) {
  const std::string plain = without_slash(path);
  for (const std::string& folder : {plain + "/checkpoints", plain}) {
    std::string name;
    if (std::ifstream(folder + "/best") >> name && step_of(name) && fs::exists(folder + "/" + name))
      return folder + "/" + name;
  }
  return std::nullopt;
}

std::string weights_in(const std::string& path) {
  const std::string plain = without_slash(path), last = plain + "/" + weights_name;
  if (!fs::is_directory(plain)) return path;
  if (report::RunDirectory::status(plain) == report::Status::completed && fs::exists(last)) return last;
  if (std::vector<std::string> found = all_in(plain); !found.empty()) return found.back();
  return fs::exists(last) ? last : path;
}

std::string weights_path(const std::string& word, const std::string& run) {
  if (word != "best") return weights_in(word);
  if (const std::optional<std::string> found = best(run)) return *found;
  throw DataError(
      run +
      ": keeps no best checkpoint; train with checkpoint.keep_best = { metric = \"val/loss\", mode = "
      "\"min\" }, or name a checkpoint of `trainyard ckpt ls " +
      run + "`");
}

Manifest read_manifest(const std::string& checkpoint) {
  const std::string path = checkpoint + "/" + manifest_name;
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  if (error)
    throw DataError(path + ": " + error.message() + "; a checkpoint without a manifest does not count");
  if (size > longest_manifest)
    throw DataError(path + ": too long for a manifest: " + std::to_string(size) + " bytes");
  std::string text(size, '\0');
  std::ifstream stream(path, std::ios::binary);
  if (!stream.read(text.data(), static_cast<std::streamsize>(size)))
    throw DataError(path + ": cannot be read: " + std::strerror(errno));
  return from_text(text, path);
}

void check_parts(const std::string& checkpoint) {
  const Manifest manifest = read_manifest(checkpoint);
  for (const FileEntry& entry : manifest.files)
    for (const TensorEntry& tensor : manifest.tensors)
      if (tensor.file == entry.name && !tensor.parts.empty()) CheckedFile(checkpoint, entry).check(tensor);
}

std::vector<std::int64_t> best_steps(const std::vector<std::string>& checkpoints, const std::string& metric,
                                     bool largest, std::int64_t count) {
  std::vector<std::pair<double, std::int64_t>> values;
  for (const std::string& checkpoint : checkpoints) {
    try {
      const Manifest manifest = read_manifest(checkpoint);
      const auto value = manifest.metrics.find(metric);
      if (value == manifest.metrics.end() || std::isnan(value->second)) continue;
      values.emplace_back(largest ? -value->second : value->second, *step_of(checkpoint));
    } catch (const DataError&) {
      // A damaged checkpoint is not among the best. Loading it reports the damage.
    }
  }
  std::sort(values.begin(), values.end());
  std::vector<std::int64_t> steps;
  for (const auto& [value, step] : values)
    if (std::ssize(steps) < count) steps.push_back(step);
  return steps;
}

void publish(const std::string& temporary, const std::string& path, const std::string& aside) {
  if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) == 0) return;
  if (errno == EEXIST &&
      ::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) == 0)
    return;
  if (errno != EINVAL && errno != ENOSYS) fail("cannot rename '" + temporary + "' to '" + path + "'");
  // Network file systems may support neither call, so it takes two renames.
  const bool replaced = ::rename(path.c_str(), aside.c_str()) == 0;
  if (::rename(temporary.c_str(), path.c_str()) == 0) return;
  const int reason = errno;
  if (replaced) ::rename(aside.c_str(), path.c_str());
  errno = reason;
  fail("cannot rename '" + temporary + "' to '" + path + "'");
}

std::vector<std::string> verify(const std::string& checkpoint) {
  std::vector<std::string> damages;
  const auto attempt = [&](const auto& check) {
    try {
      check();
    } catch (const DataError& damage) {
      damages.push_back(damage.what());
    }
  };
  attempt([&] {
    const Manifest manifest = read_manifest(checkpoint);
    for (const FileEntry& entry : manifest.files)
      attempt([&] {
        const CheckedFile file(checkpoint, entry);
        attempt([&] { file.check_size(); });
        attempt([&] { file.check_header(); });
        for (const TensorEntry& tensor : manifest.tensors)
          if (tensor.file == entry.name) attempt([&] { file.check(tensor); });
      });
  });
  return damages;
}

void sweep(const std::string& folder) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    // A folder that cannot be removed is tried again by the next sweep; it does not count as a checkpoint.
    if (name.find(".tmp-") != std::string::npos || name.find(".old-") != std::string::npos)
      fs::remove_all(entry.path(), ignored);
  }
}

}  // namespace trainyard::checkpoint
