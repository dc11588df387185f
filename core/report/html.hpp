// Escapes foreign text for use within a page.
#pragma once

#include <string>
#include <string_view>

#include "core/rundir/protocol.hpp"

namespace trainyard::report {

/// Escapes text for an element, or for an attribute value in double quotes.
inline std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) switch (c) {
      case '<': safe += "&lt;"; break;
      case '>': safe += "&gt;"; break;
      case '&': safe += "&amp;"; break;
      case '"': safe += "&quot;"; break;
      case '\'': safe += "&#39;"; break;
      default: safe += c;
    }
  return safe;
}

/// Returns JSON as text for a script element, escaping "<" because "</script" and "<!--" would end it.
inline std::string script_text(const control::Json& json) {
  std::string safe;
  for (const char c : json.dump(-1, ' ', false, control::Json::error_handler_t::replace))
    if (c == '<')
      safe += "\\u003c";
    else
      safe += c;
  return safe;
}

}  // namespace trainyard::report
