// Byte pair encoding: which pairs become tokens.
#include <algorithm>
#include <array>
#include <map>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "vocabulary.hpp"

namespace text {
namespace {

bool is_blank(char letter) {
  return letter == ' ' || letter == '\t' || letter == '\r' || letter == '\n';
}

/// Printable bytes of ISO 8859-1 first, then the others.
const std::array<std::uint8_t, 256>& order_of_bytes() {
  static const std::array<std::uint8_t, 256> order = [] {
    std::array<std::uint8_t, 256> made{};
    const auto printable = [](int byte) {
      return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    };
    std::size_t at = 0;
    for (const bool first : {true, false})
      for (int byte = 0; byte < 256; ++byte)
        if (printable(byte) == first) made[at++] = static_cast<std::uint8_t>(byte);
    return made;
  }();
  return order;
}

using Pair = std::uint32_t;  // two tokens
Pair pair_of(std::uint16_t left, std::uint16_t right) {
  return static_cast<Pair>(left) << 16 | right;
}

struct Part {
  std::vector<std::uint16_t> tokens;
  std::int64_t count = 0;
};

/// The different parts of a text, in the order of their bytes.
std::vector<Part> parts_of(std::string_view text) {
  std::map<std::string_view, std::int64_t> counts;
  while (!text.empty()) {
    const std::string_view part = next_part(text);
    ++counts[part];
    text.remove_prefix(part.size());
  }
  std::vector<Part> parts;
  for (const auto& [part, count] : counts) {
    parts.push_back({{}, count});
    for (const char byte : part)
      parts.back().tokens.push_back(token_of_byte(static_cast<std::uint8_t>(byte)));
  }
  return parts;
}

/// The counts of all pairs, kept up to date while pairs become tokens.
class Counts {
 public:
  explicit Counts(std::vector<Part> parts) : parts_(std::move(parts)) {
    for (std::size_t i = 0; i < parts_.size(); ++i) add(i, 1);
    for (const auto& [pair, count] : counts_) queue_.push({count, pair});
  }

  /// The most frequent pair; a count of 0: none is left.
  std::pair<std::int64_t, Pair> take() {
    while (!queue_.empty()) {
      const auto [count, pair] = queue_.top();
      queue_.pop();
      const std::int64_t now = counts_[pair];
      if (now == count) return {count, pair};
      if (now > 0) queue_.push({now, pair});
    }
    return {0, 0};
  }

  void merge(Pair pair, std::uint16_t token) {
    const auto left = static_cast<std::uint16_t>(pair >> 16), right = static_cast<std::uint16_t>(pair);
    const auto places = std::move(places_[pair]);
    changed_.clear();
    for (const std::size_t place : places) {
      add(place, -1);
      std::vector<std::uint16_t>& tokens = parts_[place].tokens;
      std::size_t out = 0;
      for (std::size_t in = 0; in < tokens.size(); ++in) {
        const bool both = in + 1 < tokens.size() && tokens[in] == left && tokens[in + 1] == right;
        tokens[out++] = both ? token : tokens[in];
        in += both ? 1 : 0;
      }
      tokens.resize(out);
      add(place, 1);
    }
    counts_[pair] = 0;
    for (const Pair each : changed_)
      if (counts_[each] > 0) queue_.push({counts_[each], each});
  }

 private:
  struct Entry {
    std::int64_t count;
    Pair pair;
    bool operator<(const Entry& other) const {
      return count != other.count ? count < other.count : pair > other.pair;
    }
  };

  void add(std::size_t place, std::int64_t sign) {
    const Part& part = parts_[place];
    for (std::size_t i = 0; i + 1 < part.tokens.size(); ++i) {
      const Pair pair = pair_of(part.tokens[i], part.tokens[i + 1]);
      counts_[pair] += sign * part.count;
      if (sign > 0) places_[pair].insert(place);
      changed_.insert(pair);
    }
  }

  std::vector<Part> parts_;
  std::unordered_map<Pair, std::int64_t> counts_;
  std::unordered_map<Pair, std::unordered_set<std::size_t>> places_;  ///< parts that have it, or had it
  std::unordered_set<Pair> changed_;
  std::priority_queue<Entry> queue_;
};

}  // namespace

std::string_view next_part(std::string_view text) {
  std::size_t end = 0;
  if (text.size() > 1 && text[0] == ' ' && !is_blank(text[1])) end = 1;
  if (end == 0 && is_blank(text[0])) {
    while (end < text.size() && is_blank(text[end])) ++end;
    return text.substr(0, end);
  }
  while (end < text.size() && !is_blank(text[end])) ++end;
  return text.substr(0, end);
}

std::uint16_t token_of_byte(std::uint8_t byte) {
  static const std::array<std::uint16_t, 256> tokens = [] {
    std::array<std::uint16_t, 256> made{};
    for (std::size_t i = 0; i < 256; ++i) made[order_of_bytes()[i]] = static_cast<std::uint16_t>(i);
    return made;
  }();
  return tokens[byte];
}

std::uint8_t byte_of_token(std::uint16_t token) {
  return order_of_bytes()[token];
}

Merges learn_merges(std::string_view text, std::size_t count) {
  Counts counts(parts_of(text));
  Merges merges;
  while (merges.size() < count) {
    const auto [times, pair] = counts.take();
    if (times <= 0) break;
    counts.merge(pair, static_cast<std::uint16_t>(256 + merges.size()));
    merges.emplace_back(static_cast<std::uint16_t>(pair >> 16), static_cast<std::uint16_t>(pair));
  }
  return merges;
}

}  // namespace text
