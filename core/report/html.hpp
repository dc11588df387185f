// Text of others within a page.
#pragma once

#include <string>
#include <string_view>

#include "core/rundir/protocol.hpp"

namespace trainyard::report {

/// As the text of an element, or a value of an attribute in double quotes.
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

/// JSON as the text of a script element, which "</script" and "<!--" would end.
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
