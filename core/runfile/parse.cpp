#include "core/runfile/parse.hpp"

#include <toml++/toml.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <trainyard/duration.hpp>

#include "core/runfile/paths.hpp"

namespace trainyard::config {
namespace {

constexpr std::size_t largest_file = 1 << 20;
constexpr int deepest_nesting = 32;

struct Refused {
  std::string code;
  Origin at;
  std::string message, hint;
};

/// Returns the position after the string that begins at `i`, by TOML's rules for all four kinds of string.
std::size_t skip_string(std::string_view text, std::size_t i) {
  const char quote = text[i];
  const bool triple = text.substr(i, 3) == std::string(3, quote);
  for (i += triple ? 3 : 1; i < text.size(); ++i) {
    if (text[i] == '\\' && quote == '"')
      ++i;
    else if (text[i] == '\n' && !triple)
      return i;  // unterminated: the parser stops here
    else if (text[i] == quote && (!triple || text.substr(i, 3) == std::string(3, quote)))
      break;
  }
  i += triple ? 3 : 1;
  // Up to two quotes may directly precede the closing three.
  for (int extra = 0; triple && extra < 2 && i < text.size() && text[i] == quote; ++extra) ++i;
  return std::min(i, text.size());
}

/// Returns the line of a key with too many dots, or 0; runs before parsing. toml++ bounds brackets but not
/// dotted keys, whose tables it frees by recursion: "[a.a.a. ...]" in a hostile file would overflow the
/// stack.
int line_of_deep_key(std::string_view text) {
  int dots = 0;
  for (std::size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (c == '"' || c == '\'') {
      i = skip_string(text, i);
      continue;
    }
    if (c == '#') {
      i = std::min(text.find('\n', i), text.size());
      continue;
    }
    if (c == '.' && ++dots > deepest_nesting)
      return 1 + static_cast<int>(std::count(text.begin(), text.begin() + static_cast<long>(i), '\n'));
    if (c == '\n' || c == '=' || c == ',' || c == '{' || c == '[') dots = 0;
    ++i;
  }
  return 0;
}

/// Recognises the most likely slip, an unquoted duration: max_duration = 30ep.
std::string unquoted_duration(const std::string& text, std::size_t line) {
  std::istringstream lines(text);
  std::string written;
  for (std::size_t i = 0; i < line; ++i) std::getline(lines, written);
  const std::size_t begin = written.find_first_not_of(" \t", written.find('=') + 1);
  if (begin == std::string::npos) return {};
  const std::string word = written.substr(begin, written.find_first_of(" \t\r,}]#", begin) - begin);
  return Duration::parse(word) ? "a duration is written in quotes: \"" + word + "\"" : "";
}

class Converter {
 public:
  explicit Converter(std::shared_ptr<const std::string> file) : file_(std::move(file)) {}

  Table table(const toml::table& source, int depth) const {
    check_depth(source, depth);
    Table result;
    for (const auto& [key, node] : source) {
      Value converted = value(node, depth + 1);
      converted.key_origin = origin(key.source());
      result.entries().push_back({std::string(key.str()), std::move(converted)});
    }
    // toml++ sorts by name; readers expect the order of the file.
    std::stable_sort(result.entries().begin(), result.entries().end(),
                     [](const Table::Entry& a, const Table::Entry& b) {
                       return std::pair(a.value.key_origin.line, a.value.key_origin.column) <
                              std::pair(b.value.key_origin.line, b.value.key_origin.column);
                     });
    return result;
  }

  Value value(const toml::node& node, int depth) const {
    Value result = data(node, depth);
    result.origin = origin(node.source());
    return result;
  }

  Origin origin(const toml::source_region& region) const {
    return {file_, static_cast<int>(region.begin.line), static_cast<int>(region.begin.column)};
  }

 private:
  void check_depth(const toml::node& node, int depth) const {
    if (depth > deepest_nesting)
      throw Refused{"E102", origin(node.source()),
                    "nested more than " + std::to_string(deepest_nesting) + " deep",
                    "no key of a run file needs this; flatten the table"};
  }

  Value data(const toml::node& node, int depth) const {
    check_depth(node, depth);
    if (const auto* v = node.as_boolean()) return v->get();
    if (const auto* v = node.as_integer()) return v->get();
    if (const auto* v = node.as_floating_point()) return v->get();
    if (const auto* v = node.as_string()) return v->get();
    if (const auto* v = node.as_table()) return table(*v, depth);
    if (const auto* v = node.as_array()) {
      Array array;
      for (const toml::node& element : *v) array.push_back(value(element, depth + 1));
      return array;
    }
    throw Refused{"E105", origin(node.source()), "a date or time has no use in a run file",
                  "put it in quotes if it is meant as a string"};
  }

  std::shared_ptr<const std::string> file_;
};

}  // namespace

std::optional<Table> parse_text(const std::string& file, const std::string& text, Findings& findings) {
  const auto name = std::make_shared<const std::string>(file);
  if (text.find_first_of(std::string_view("\0\1\2\3\4\5\6\7\x0e\x0f\x10", 11)) != std::string::npos) {
    findings.error("E102", {name, 0, 0}, "is no text, and a run file is one", "is this the right file?");
    return std::nullopt;
  }
  findings.add_source(file, text);
  if (const int line = line_of_deep_key(text)) {
    findings.error("E102", {name, line, 1},
                   "a key with more than " + std::to_string(deepest_nesting) + " dots",
                   "no key of a run file needs this");
    return std::nullopt;
  }
  try {
    const toml::table parsed = toml::parse(std::string_view(text), file);
    return Converter(name).table(parsed, 0);
  } catch (const toml::parse_error& error) {
    const auto& begin = error.source().begin;
    findings.error("E102", {name, static_cast<int>(begin.line), static_cast<int>(begin.column)},
                   "not TOML: " + std::string(error.description()), unquoted_duration(text, begin.line));
  } catch (const Refused& refused) {
    findings.error(refused.code, refused.at, refused.message, refused.hint);
  }
  return std::nullopt;
}

std::optional<Table> parse_file(const std::string& file, Findings& findings) {
  const Origin whole{std::make_shared<const std::string>(file), 0, 0};
  std::error_code error;
  if (const char* kind = no_file(file)) {
    findings.error("E101", whole, std::string("is ") + kind + ", not a run file");
    return std::nullopt;
  }
  std::ifstream stream(file, std::ios::binary);
  if (!stream) {
    findings.error("E101", whole, std::string("cannot be read: ") + std::strerror(errno),
                   "looked for at " + std::filesystem::absolute(file, error).lexically_normal().string());
    return std::nullopt;
  }
  std::string text(largest_file + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (stream.bad()) {
    findings.error("E101", whole, std::string("cannot be read: ") + std::strerror(errno));
    return std::nullopt;
  }
  text.resize(static_cast<std::size_t>(stream.gcount()));
  if (text.size() > largest_file) {
    findings.error("E101", whole, "is larger than 1 MiB, which no run file is", "is this the right file?");
    return std::nullopt;
  }
  return parse_text(file, text, findings);
}

std::optional<Value> parse_value(const std::string& text) {
  // A line break would let one --set write several keys.
  if (text.find_first_of("\r\n") != std::string::npos) return std::nullopt;
  Findings unused;
  std::optional<Table> table = parse_text("--set", "value = " + text, unused);
  if (!table) return std::nullopt;
  return std::move(table->entries().front().value);
}

}  // namespace trainyard::config
