// Writes text into formats that give some characters a meaning.
#pragma once

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

}  // namespace trainyard::lib
