// UTF-8 (RFC 3629).
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

namespace datasets {

/// The code point at the beginning of the text, and how many bytes it takes; nothing where they are not valid.
struct CodePoint {
  std::uint32_t value = 0;
  std::size_t length = 0;
};
inline std::optional<CodePoint> code_point(std::string_view text) {
  if (text.empty()) return std::nullopt;
  const auto first = static_cast<std::uint8_t>(text[0]);
  const int ones = std::countl_one(first);
  const std::size_t length = ones == 0 ? 1 : static_cast<std::size_t>(ones);
  if (ones == 1 || length > 4 || length > text.size()) return std::nullopt;
  std::uint32_t point = ones == 0 ? first : first & (0x7fu >> length);
  for (std::size_t i = 1; i < length; ++i) {
    const auto byte = static_cast<std::uint8_t>(text[i]);
    if ((byte & 0xc0) != 0x80) return std::nullopt;
    point = point << 6 | (byte & 0x3fu);
  }
  constexpr std::uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (point < smallest[length] || point > 0x10ffff || (point >= 0xd800 && point <= 0xdfff))
    return std::nullopt;
  return CodePoint{point, length};
}

/// The first byte that is not valid; nothing where all of it is.
inline std::optional<std::size_t> first_invalid(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::optional<CodePoint> point = code_point(text.substr(at));
    if (!point) return at;
    at += point->length;
  }
  return std::nullopt;
}
inline bool is_utf8(std::string_view text) {
  return !first_invalid(text);
}

}  // namespace datasets
