#include "pattern.hpp"

#include <algorithm>

#include <trainyard/error.hpp>

namespace convert {
namespace {

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  for (;;) {
    const std::size_t bar = text.find('|');
    words.emplace_back(text.substr(0, bar));
    if (bar == std::string_view::npos) return words;
    text.remove_prefix(bar + 1);
  }
}

/// The lengths that a number at the beginning may have: all its digits, as nothing else follows a number in a name.
std::size_t digits(std::string_view text) {
  const auto end = std::find_if(text.begin(), text.end(), [](char c) { return c < '0' || c > '9'; });
  return static_cast<std::size_t>(end - text.begin());
}

}  // namespace

Pattern::Pattern(const std::string& text) : text_(text) {
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t open = rest.find('{');
    if (open != 0) {
      pieces_.push_back({.text = std::string(rest.substr(0, open))});
      if (open == std::string_view::npos) return;
      rest.remove_prefix(open);
      continue;
    }
    const std::size_t close = rest.find('}');
    if (close == std::string_view::npos || close == 1)
      throw trainyard::ConfigError("\"" + text +
                                   "\": found a \"{\" without a name and \"}\" behind it, "
                                   "expected a place such as {layer} or {part:weight|bias}");
    const std::string_view place = rest.substr(1, close - 1);
    const std::size_t colon = place.find(':');
    pieces_.push_back({.text = std::string(place.substr(0, colon)),
                       .is_place = true,
                       .words = colon == std::string_view::npos ? std::vector<std::string>()
                                                                : words_of(place.substr(colon + 1))});
    rest.remove_prefix(close + 1);
  }
}

std::set<std::string> Pattern::places() const {
  std::set<std::string> names;
  for (const Piece& piece : pieces_)
    if (piece.is_place) names.insert(piece.text);
  return names;
}

std::optional<Places> Pattern::match(std::string_view name) const {
  Places found;
  return match_from(0, name, found) ? std::optional(found) : std::nullopt;
}

bool Pattern::match_from(std::size_t piece, std::string_view rest, Places& found) const {
  if (piece == pieces_.size()) return rest.empty();
  const Piece& own = pieces_[piece];
  if (!own.is_place)
    return rest.starts_with(own.text) && match_from(piece + 1, rest.substr(own.text.size()), found);
  std::vector<std::string> possible = own.words;
  if (possible.empty() && digits(rest) > 0) possible.emplace_back(rest.substr(0, digits(rest)));
  for (const std::string& word : possible) {
    if (!rest.starts_with(word)) continue;
    const auto known = found.find(own.text);
    if (known != found.end() && known->second != word) continue;
    Places with = found;
    with[own.text] = word;
    if (!match_from(piece + 1, rest.substr(word.size()), with)) continue;
    found = std::move(with);
    return true;
  }
  return false;
}

std::string Pattern::name_of(const Places& places) const {
  std::string name;
  for (const Piece& piece : pieces_) name += piece.is_place ? places.at(piece.text) : piece.text;
  return name;
}

}  // namespace convert
