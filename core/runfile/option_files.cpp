#include "core/runfile/option_files.hpp"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "core/runfile/paths.hpp"
#include "core/runfile/suggest.hpp"

namespace trainyard::config {
namespace {

/// Calls f(path, name of its option) for each path, those in tables among the options as well; `Options` is a table,
/// constant or not.
template <class Options, class F>
void each_file(const std::vector<OptionSpec>& specs, Options& options, F f) {
  for (const OptionSpec& spec : specs) {
    auto* option = spec.file || !spec.fields.empty() ? options.find(spec.name) : nullptr;
    if (option == nullptr) continue;
    const auto one = [&](auto& value) {
      if (spec.file) return f(value, spec.name);
      each_file(spec.fields, value.template as<Table>(), f);
    };
    if (!spec.list) {
      one(*option);
      continue;
    }
    for (auto& element : option->template as<Array>()) one(element);
  }
}

std::string near_file(const std::filesystem::path& folder, const std::string& path) {
  constexpr std::size_t most = 1000;
  std::vector<std::string> names;
  std::error_code error;
  for (auto entry = std::filesystem::directory_iterator(folder, error);
       !error && entry != std::filesystem::directory_iterator() && names.size() < most;
       entry.increment(error))
    names.push_back(entry->path().filename().string());
  std::sort(names.begin(), names.end());
  const std::string near = nearest(std::filesystem::path(path).filename().string(), names);
  return near.empty() ? "its folder is there, but holds nothing of a like name"
                      : "did you mean `" + near + "`?";
}

}  // namespace

void anchor_files(const std::vector<OptionSpec>& specs, Table& options) {
  each_file(specs, options, [](Value& path, const std::string&) {
    auto& text = path.as<std::string>();
    text = absolute_path(text, path.origin);
  });
}

void files_exist(const std::vector<OptionSpec>& specs, const Table& options, const std::string& where,
                 Findings& findings) {
  constexpr int most_looked_up = 20;  // a list may name thousands of files
  int missing = 0;
  each_file(specs, options, [&](const Value& path, const std::string& name) {
    const auto& text = path.as<std::string>();
    if (text.empty()) return;
    std::error_code error;
    if (!std::filesystem::exists(text, error)) {
      const std::filesystem::path folder = std::filesystem::path(text).parent_path();
      if (++missing > most_looked_up) {
        findings.error("E401", path.origin, where + "." + name + ": " + text + " does not exist");
        return;
      }
      findings.error("E401", path.origin, where + "." + name + ": " + text + " does not exist",
                     std::filesystem::is_directory(folder, error)
                         ? near_file(folder, text)
                         : "nor does its folder; a path is relative to the file that it is written "
                           "in, ${run.data} is TRAINYARD_DATA or run.data");
    } else if (const char* kind = no_file(text);
               kind != nullptr && !std::filesystem::is_directory(text, error)) {
      findings.error("E401", path.origin, where + "." + name + ": " + text + " is " + kind + ", not a file",
                     "write what comes from it to a file first");
    } else if (access(text.c_str(), R_OK) != 0) {
      findings.error("E401", path.origin, where + "." + name + ": no right to read " + text);
    }
  });
}

}  // namespace trainyard::config
