#include "core/cli/scaffold.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <utility>

#include <trainyard/error.hpp>
#include <trainyard/version.hpp>

#include "core/cli/engine_library.hpp"
#include "core/plugins/host_verbs.hpp"
#include "core/plugins/kinds.hpp"
#include "lib/read_file.hpp"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t longest_name = 64;

/// Reserved words of C++, of the SDK's classes (Options, Common) and of CMake's own targets.
constexpr std::string_view reserved[] = {
    "alignas",    "alignof",      "and",       "asm",      "auto",     "bool",      "break",     "case",
    "catch",      "char",         "class",     "concept",  "const",    "consteval", "constexpr", "constinit",
    "continue",   "co_await",     "co_return", "co_yield", "decltype", "default",   "delete",    "do",
    "double",     "else",         "enum",      "explicit", "export",   "extern",    "false",     "float",
    "for",        "friend",       "goto",      "if",       "inline",   "int",       "long",      "mutable",
    "namespace",  "new",          "noexcept",  "not",      "nullptr",  "operator",  "or",        "private",
    "protected",  "public",       "register",  "requires", "return",   "short",     "signed",    "sizeof",
    "static",     "struct",       "switch",    "template", "this",     "throw",     "true",      "try",
    "typedef",    "typeid",       "typename",  "union",    "unsigned", "using",     "virtual",   "void",
    "volatile",   "while",        "xor",       "final",    "override", "main",      "std",       "trainyard",
    "options",    "common",       "test",      "all",      "clean",    "install",   "package",   "help",
    "edit_cache", "rebuild_cache"};

bool is_identifier(const std::string& name) {
  const auto allowed = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  return !name.empty() && name.front() >= 'a' && name.front() <= 'z' && std::ranges::all_of(name, allowed) &&
         name.find("__") == std::string::npos && name.size() <= longest_name;
}

/// Returns the class name: "my_plugin" is MyPlugin.
std::string class_name(const std::string& name) {
  std::string result;
  bool upper = true;
  for (const char c : name) {
    if (c != '_') result += upper ? static_cast<char>(std::toupper(c)) : c;
    upper = c == '_';
  }
  return result;
}

using Replacements = std::vector<std::pair<std::string_view, std::string>>;

/// Replaces in one pass, so that inserted text is not searched again.
std::string replaced(const std::string& text, const Replacements& replacements) {
  std::string result;
  for (std::size_t i = 0; i < text.size();) {
    const auto found = std::ranges::find_if(replacements, [&](const auto& each) {
      return std::string_view(text).substr(i).starts_with(each.first);
    });
    if (found == replacements.end()) {
      result += text[i++];
      continue;
    }
    result += found->second;
    i += found->first.size();
  }
  return result;
}

std::string read_text(const fs::path& path) {
  if (auto text = lib::read_file(path)) return *std::move(text);
  throw DataError("cannot read " + path.string() + ": install Trainyard again");
}

void write_text(const fs::path& path, const std::string& text) {
  std::ofstream stream(path, std::ios::binary);
  stream << text;
  if (!stream.flush()) throw DataError("cannot write " + path.string());
}

std::string spdx(const std::string& licence) {
  if (licence == "mit") return "MIT";
  return licence == "apache-2.0" ? "Apache-2.0" : "BSD-3-Clause";
}

class Writer {
 public:
  Writer(const Scaffold& what, fs::path folder) : what_(what), folder_(std::move(folder)) {
    const std::string author = what.author.empty() ? "the authors of " + what.name : what.author;
    const auto today = std::chrono::floor<std::chrono::days>(std::chrono::system_clock::now());
    const std::string year = std::to_string(static_cast<int>(std::chrono::year_month_day(today).year()));
    replacements_ = {{"my_plugin", what.name}, {"MyPlugin", class_name(what.name)},
                     {"my_kind", what.kind},   {"MY_AUTHOR", author},
                     {"MY_YEAR", year},        {"MY_LIBTORCH", TRAINYARD_LIBTORCH_VERSION}};
    if (what.licence != "none")
      header_ = "// SPDX-License-Identifier: " + spdx(what.licence) + "\n// Copyright (c) " + year + " " +
                author + "\n";
  }

  void write() {
    const fs::path templates = templates_folder();
    copy_all(templates / what_.kind);
    replacements_.emplace_back("MY_COMMAND", first_command(folder_.string()));
    copy_all(templates / "common");
    if (what_.licence == "none") return;
    write_text(folder_ / "LICENSE",
               replaced(read_text(templates / "licences" / what_.licence), replacements_));
  }

 private:
  void copy_all(const fs::path& from) {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(from)) {
      const std::string name = replaced(fs::relative(entry.path(), from).string(), replacements_);
      if (entry.is_directory()) {
        fs::create_directories(folder_ / name);
        continue;
      }
      const bool code = name.ends_with(".cpp") || name.ends_with(".hpp");
      write_text(folder_ / name, (code ? header_ : "") + replaced(read_text(entry.path()), replacements_));
    }
  }

  const Scaffold& what_;
  const fs::path folder_;
  Replacements replacements_;
  std::string header_;
};

}  // namespace

std::string templates_folder() {
  return home() + "/share/trainyard/templates";
}

std::string refused_name(const std::string& kind, const std::string& name, const plugins::Registry& shipped) {
  if (!is_identifier(name))
    return "\"" + name +
           "\" is no name of a plugin: take lower-case letters, digits and single _, a letter " +
           "first, at most " + std::to_string(longest_name) + ", as in my_" + kind;
  if (std::ranges::find(reserved, name) != std::end(reserved))
    return "\"" + name + "\" is a word of C++, CMake or the SDK: take another name, as my_" + name;
  const plugins::KindRow* const row = plugins::find_kind(kind);
  if (row != nullptr && row->is_verb &&
      std::ranges::find(plugins::host_verbs, name) != std::end(plugins::host_verbs))
    return "\"" + name + "\" is a verb of the host, and a " + kind +
           " is one, too: take another name, as my_" + name;
  if (const auto found = shipped.find(kind, name); !found.empty())
    return "there is a plugin " + kind + "/" + name + " already, " + found.front()->path +
           ": take another name, as my_" + name;
  return {};
}

std::string scaffold(const Scaffold& what, const plugins::Registry& shipped) {
  if (const std::string refused = refused_name(what.kind, what.name, shipped); !refused.empty())
    throw ConfigError(refused);
  if (what.author.find_first_of("\r\n") != std::string::npos)
    throw ConfigError("--author has several lines: give one name");
  std::error_code error;
  if (!fs::is_directory(templates_folder() + "/" + what.kind, error))
    throw DataError("there is no template " + templates_folder() + "/" + what.kind +
                    ": install all of Trainyard (cmake --install)");
  const fs::path folder = (fs::path(what.directory) / what.name).lexically_normal();
  fs::create_directories(what.directory, error);
  if (fs::exists(fs::symlink_status(folder)))
    throw ConfigError(folder.string() +
                      " is there already, and is left as it is: take another name, or --dir");
  if (!fs::create_directory(folder, error))
    throw DataError("cannot make the folder " + folder.string() + ": " + error.message());
  try {
    Writer(what, folder).write();
  } catch (...) {
    fs::remove_all(folder, error);
    throw;
  }
  return folder.string();
}

std::string first_command(const std::string& folder) {
  std::istringstream text(read_text(fs::path(folder) / "run.toml"));
  std::string line;
  std::getline(text, line);
  return line.starts_with("# ") ? line.substr(2) : "trainyard train run.toml";
}

std::string own_command() {
  const char* const variable = std::getenv("PATH");
  std::stringstream list(variable != nullptr ? variable : "");
  std::error_code error;
  for (std::string folder; std::getline(list, folder, ':');)
    if (!folder.empty() && fs::equivalent(folder, home() + "/bin", error)) return "trainyard";
  return home() + "/bin/trainyard";
}

}  // namespace trainyard::cli
