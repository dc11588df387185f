// How GPT-2 cuts text into pieces, within which pairs are merged.
#include <algorithm>
#include <cstdint>
#include <iterator>

#include "../utf8.hpp"
#include "tokenizer_file.hpp"

namespace text {
namespace {

struct CodePoints {
  std::uint32_t first, last;
};
#include "letters.inc"

constexpr CodePoints spaces[] = {{0x9, 0xd},       {0x20, 0x20},     {0x85, 0x85},     {0xa0, 0xa0},
                                 {0x1680, 0x1680}, {0x2000, 0x200a}, {0x2028, 0x2029}, {0x202f, 0x202f},
                                 {0x205f, 0x205f}, {0x3000, 0x3000}};

template <std::size_t Count>
bool holds(const CodePoints (&ranges)[Count], std::uint32_t point) {
  const auto after =
      std::upper_bound(std::begin(ranges), std::end(ranges), point,
                       [](std::uint32_t value, const CodePoints& range) { return value < range.first; });
  return after != std::begin(ranges) && point <= std::prev(after)->last;
}

enum class Class : std::uint8_t { letter, number, space, other };

Class class_of(std::uint32_t point) {
  if (holds(spaces, point)) return Class::space;
  if (holds(letters, point)) return Class::letter;
  return holds(numbers, point) ? Class::number : Class::other;
}

/// The end of the stretch of one class that begins at `at`, and where its last character begins.
struct Stretch {
  Class of = Class::other;
  std::size_t last = 0, end = 0;
};
Stretch stretch(std::string_view text, std::size_t at) {
  Stretch found{.of = class_of(datasets::code_point(text.substr(at))->value), .last = at, .end = at};
  while (found.end < text.size()) {
    const datasets::CodePoint point = *datasets::code_point(text.substr(found.end));
    if (class_of(point.value) != found.of) break;
    found.last = found.end;
    found.end += point.length;
  }
  return found;
}

}  // namespace

bool is_number(std::string_view character) {
  const auto point = datasets::code_point(character);
  return point && point->length == character.size() && class_of(point->value) == Class::number;
}

std::string_view gpt2_piece(std::string_view text) {
  for (const std::string_view contraction : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"})
    if (text.starts_with(contraction)) return text.substr(0, contraction.size());
  const std::size_t blank = text.front() == ' ' && text.size() > 1 ? 1 : 0;
  const Stretch word = stretch(text, blank);
  if (word.of != Class::space) return text.substr(0, word.end);
  // White space leaves its last character to a word that follows.
  const Stretch white = stretch(text, 0);
  return text.substr(0, white.end < text.size() && white.last > 0 ? white.last : white.end);
}

}  // namespace text
