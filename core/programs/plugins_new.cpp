// trainyard plugins new: makes a folder for a user's plugin from the installed templates, sdk/templates. It
// builds, is tested and trains as it is.
#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <utility>

#include <trainyard/error.hpp>
#include <trainyard/version.hpp>

#include "core/cli/engine_library.hpp"
#include "core/plugins/host_verbs.hpp"
#include "core/plugins/kinds.hpp"
#include "core/plugins/registry.hpp"
#include "core/programs/programs.hpp"
#include "lib/on_path.hpp"
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

const std::vector<std::string> licences = {"apache-2.0", "mit", "bsd-3-clause", "none"};

struct Scaffold {
  std::string kind, name;
  std::string directory = ".";  ///< in which the folder is made
  std::string licence = "apache-2.0";
  std::string author;  ///< empty: "the authors of NAME"
};

/// Returns the folder of this installation's templates: one folder per kind, and `common` and `licences`.
std::string templates_folder() {
  return home() + "/share/trainyard/templates";
}

/// Returns the command with which run.toml of a folder made so begins.
std::string first_command(const std::string& folder) {
  std::istringstream text(read_text(fs::path(folder) / "run.toml"));
  std::string line;
  std::getline(text, line);
  return line.starts_with("# ") ? line.substr(2) : "trainyard train run.toml";
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

/// Returns why a name is refused, and the remedy; empty if it is not. `shipped`: the existing plugins.
std::string refused_name(const std::string& kind, const std::string& name, const plugins::Registry& shipped) {
  if (!is_identifier(name))
    return "\"" + name +
           "\" is no name of a plugin: take lower-case letters, digits and single _, a letter " +
           "first, at most " + std::to_string(longest_name) + ", as in my_" + kind;
  if (std::ranges::find(reserved, name) != std::end(reserved))
    return "\"" + name + "\" is a word of C++, CMake or the SDK: take another name, as my_" + name;
  const plugins::KindRow* const row = plugins::find_kind(kind);
  if (row != nullptr && row->is_verb && plugins::is_host_verb(name))
    return "\"" + name + "\" is a verb of the host, and a " + kind +
           " is one, too: take another name, as my_" + name;
  if (const auto found = shipped.find(kind, name); !found.empty())
    return "there is a plugin " + kind + "/" + name + " already, " + found.front()->path +
           ": take another name, as my_" + name;
  return {};
}

/// Makes the folder and returns its path. Throws ConfigError where the name is refused or the folder exists,
/// and DataError where it cannot be written; then nothing is left behind.
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

/// Returns `trainyard` if the PATH finds this program under that name; else its path.
std::string own_command() {
  const std::string own = home() + "/bin/trainyard";
  const auto found = lib::on_path("trainyard");
  std::error_code error;
  return found && fs::equivalent(*found, own, error) ? "trainyard" : own;
}

/// Prints the next commands to type in the current folder.
void tell(const Scaffold& what, const std::string& folder) {
  const std::string command = own_command();
  const bool on_path = command == "trainyard";
  std::string run = first_command(folder);
  for (std::size_t at = 0; !on_path && (at = run.find("trainyard ", at)) != std::string::npos;
       at += command.size())
    run.replace(at, std::string_view("trainyard").size(), command);
  std::cout << "made " << folder << ", of kind " << what.kind
            << ": it builds and trains as it stands. Next:\n"
            << "  cd " << folder << '\n'
            << "  cmake -B build" << (on_path ? "" : " -DCMAKE_PREFIX_PATH=" + home())
            << " && cmake --build build && ctest --test-dir build\n"
            << "  " << run << '\n';
}

int make(Scaffold& what) {
  const auto shipped = plugins::Registry::scan({home() + "/lib/trainyard/plugins"});
  tell(what, scaffold(what, shipped));
  return static_cast<int>(ExitCode::done);
}

}  // namespace

void add_plugins_new(Arguments plugins, CommandLine& line) {
  const auto what = std::make_shared<Scaffold>();
  Arguments verb = plugins.verb("new", "make a folder for a plugin of your own");
  verb.add("kind", what->kind, "what it is: schedule, loss, hook").required().one_of(kinds_of_plugins());
  verb.add("name", what->name, "its name: lower-case letters, digits and _").required();
  verb.add("--dir", what->directory, "where the folder NAME is made; here without it");
  verb.add("--licence,--license", what->licence, "of its files (apache-2.0)").one_of(licences);
  verb.add("--author", what->author, "who has the copyright");
  when_chosen(verb, line, what, make);
}

}  // namespace trainyard::cli
