// Fields of lines, and numbers in texts.
#pragma once

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace datasets {

/// All of the text, or nothing.
template <class Number, class... Base>
std::optional<Number> parsed(std::string_view text, Base... base) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base...);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// What stands between the separators.
inline void split(std::string_view line, char separator, std::vector<std::string_view>& fields) {
  fields.clear();
  for (std::size_t at = 0;;) {
    const std::size_t end = std::min(line.find(separator, at), line.size());
    fields.push_back(line.substr(at, end - at));
    if (end == line.size()) return;
    at = end + 1;
  }
}

/// For messages.
inline std::string shown(std::string_view text) {
  return "'" + std::string(text.substr(0, 40)) + "'";
}

}  // namespace datasets
