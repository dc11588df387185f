// Writes text into formats that give some characters a meaning.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

namespace trainyard::lib {

/// Returns text for an element of XML or HTML, or for an attribute value in double quotes, with entities for those
/// characters of `special` that have one.
inline std::string escaped(std::string_view text, std::string_view special = "<>&\"") {
  std::string safe;
  for (const char c : text) switch (special.find(c) == std::string_view::npos ? '\0' : c) {
      case '<': safe += "&lt;"; break;
      case '>': safe += "&gt;"; break;
      case '&': safe += "&amp;"; break;
      case '"': safe += "&quot;"; break;
      case '\'': safe += "&#39;"; break;
      default: safe += c;
    }
  return safe;
}

/// Returns a field of a CSV file, in quotes where it holds one of `special`.
inline std::string csv_field(std::string_view text, std::string_view special = ",\"\r\n") {
  if (text.find_first_of(special) == std::string_view::npos) return std::string(text);
  std::string field = "\"";
  for (const char c : text) field.append(c == '"' ? 2 : 1, c);
  return field + '"';
}

/// Returns a basic string of TOML, on one line.
inline std::string toml_string(std::string_view text) {
  constexpr std::string_view escaped = "\"\\\b\t\n\f\r", letters = "\"\\btnfr", digits = "0123456789ABCDEF";
  std::string out = "\"";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (const std::size_t at = escaped.find(c); at != std::string_view::npos)
      out.append("\\").append(1, letters[at]);
    else if (code < 0x20 || code == 0x7f)
      out.append("\\u00").append(1, digits[code >> 4]).append(1, digits[code & 15]);
    else
      out += c;
  }
  return out + '"';
}

/// Returns a key of TOML, in quotes where it needs them.
inline std::string toml_key(const std::string& key) {
  const auto is_bare = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '-'; };
  return !key.empty() && std::all_of(key.begin(), key.end(), is_bare) ? key : toml_string(key);
}

}  // namespace trainyard::lib
