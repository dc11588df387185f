// Escapes foreign text for use within a page.
#pragma once

#include <string>
#include <string_view>

#include "core/rundir/protocol.hpp"
#include "lib/escapes.hpp"

namespace trainyard::report {

/// Escapes text for an element, or for an attribute value in quotes.
inline std::string escaped(std::string_view text) {
  return lib::escaped(text, "<>&\"'");
}

/// Returns the classes of what is drawn for a group: eight colours, then the same with dashes.
inline std::string look(std::size_t group) {
  return "c" + std::to_string(group % 8) + (group >= 8 ? " dashed" : "");
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
