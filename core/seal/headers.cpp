#include "core/seal/headers.hpp"

#include <algorithm>
#include <cctype>
#include <iterator>

#include <trainyard/error.hpp>

#include "lib/read_file.hpp"
#include "lib/sha256.hpp"

namespace trainyard::seal {
namespace {

namespace fs = std::filesystem;

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

/// Returns the end of the comment that begins at `at`, or `at` where none begins.
std::size_t after_comment(const std::string& text, std::size_t at) {
  const auto end_of = [&](const char* end, std::size_t size) {
    const std::size_t found = text.find(end, at + 2);
    return found == std::string::npos ? text.size() : found + size;
  };
  if (text.compare(at, 2, "//") == 0) return end_of("\n", 0);
  if (text.compare(at, 2, "/*") == 0) return end_of("*/", 2);
  return at;
}

/// The same for a string, a character and a raw string.
std::size_t after_literal(const std::string& text, std::size_t at) {
  if (text.compare(at, 2, "R\"") == 0 && (at == 0 || !is_word(text[at - 1]))) {
    const std::size_t open = text.find('(', at);
    if (open == std::string::npos) return text.size();
    const std::string end = ")" + text.substr(at + 2, open - at - 2) + "\"";
    const std::size_t found = text.find(end, open);
    return found == std::string::npos ? text.size() : found + end.size();
  }
  const char quote = text[at];
  const bool separates_digits = quote == '\'' && at > 0 && is_word(text[at - 1]);
  if ((quote != '"' && quote != '\'') || separates_digits) return at;
  std::size_t end = at + 1;
  while (end < text.size() && text[end] != quote) end += text[end] == '\\' ? 2 : 1;
  return std::min(end + 1, text.size());
}

std::string read(const fs::path& path) {
  if (auto text = lib::read_file(path)) return *std::move(text);
  throw PluginError("cannot be sealed: the header " + path.string() + " cannot be read");
}

/// Returns whether a header is part of the contract without declaring it: all are, except those in these
/// folders, whose code a plugin compiles into its own object.
bool is_binding(const std::string& name) {
  const std::string_view own[] = {"helpers/", "formats/", "ad/", "testing/"};
  return std::ranges::none_of(own, [&](std::string_view folder) { return name.starts_with(folder); });
}

void add(const fs::path& folder, const fs::path& header, Headers& headers) {
  const std::string name = header.lexically_relative(folder).generic_string();
  const std::string text = without_comments(read(header));
  const bool named = text.find("TRAINYARD_CONTRACT(\"" + name + "\")") != std::string::npos;
  if (!named && !is_binding(name)) return;
  const std::string digest = lib::Sha256::of(text).substr(0, plugins::contract_digits);
  headers.contract[name] = digest;
  if (!named) headers.unnamed[name] = digest;
}

}  // namespace

std::string without_comments(const std::string& text) {
  std::string result;
  bool apart = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t comment = after_comment(text, at);
    if (comment != at || std::isspace(static_cast<unsigned char>(text[at])) != 0) {
      apart = true;
      at = std::max(comment, at + 1);
      continue;
    }
    if (apart && !result.empty() && is_word(result.back()) && is_word(text[at])) result += ' ';
    apart = false;
    const std::size_t end = std::max(after_literal(text, at), at + 1);
    result.append(text, at, end - at);
    at = end;
  }
  return result;
}

Headers read_headers(const fs::path& include) {
  Headers headers;
  const fs::path folder = include / "trainyard";
  std::error_code error;
  for (auto entry = fs::recursive_directory_iterator(folder, error); !error && entry != end(entry);
       entry.increment(error))
    if (entry->path().extension() == ".hpp") add(folder, entry->path(), headers);
  if (error)
    throw PluginError("cannot be sealed: " + folder.string() + " cannot be read (" + error.message() +
                      "); expected the headers of the SDK");
  return headers;
}

}  // namespace trainyard::seal
