// Numbers in texts.
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <string_view>

namespace datasets {

/// All of the text, or nothing.
template <class Number, class... Base>
std::optional<Number> parsed(std::string_view text, Base... base) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base...);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// For messages.
inline std::string shown(std::string_view text) {
  return "'" + std::string(text.substr(0, 40)) + "'";
}

}  // namespace datasets
