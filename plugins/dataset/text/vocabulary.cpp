#include "vocabulary.hpp"

#include <algorithm>
#include <set>
#include <unordered_map>

#include <trainyard/error.hpp>

#include "../utf8.hpp"
#include "tokenizer_file.hpp"

namespace text {

using trainyard::Array;
using trainyard::DataError;
using trainyard::Table;
using trainyard::Value;

namespace {

Table table_of(const char* level, const char* key, Array values) {
  Table table;
  table.set("format", 1);
  table.set("level", level);
  if (!values.empty()) table.set(key, std::move(values));
  return table;
}

class Bytes final : public Vocabulary {
 public:
  std::int64_t size() const override { return 256; }
  std::vector<Lost> encode(std::string_view text, std::vector<std::uint16_t>& tokens) override {
    for (const char byte : text) tokens.push_back(static_cast<std::uint8_t>(byte));
    return {};
  }
  std::string decode(std::uint16_t token) const override { return {static_cast<char>(token)}; }
  Table to_table() const override { return table_of("byte", "", {}); }
};

std::size_t character(std::string_view text, std::size_t at) {
  const auto point = datasets::code_point(text.substr(at));
  if (!point)
    throw DataError("byte " + std::to_string(at) +
                    " is not valid UTF-8: convert the file, or set level = \"byte\"");
  return point->length;
}

template <class Tell>
void each_character(std::string_view text, Tell&& tell) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = character(text, at);
    tell(text.substr(at, length));
    at += length;
  }
}

bool is_taken(const std::vector<bool>& taken, std::size_t unit) {
  return taken.empty() || taken[unit];
}

/// The distinct characters, sorted.
class Characters final : public Vocabulary {
 public:
  Characters(std::string_view text, const std::vector<bool>& taken) {
    std::set<std::string_view> seen;
    std::size_t place = 0;
    each_character(text, [&](std::string_view letter) {
      if (is_taken(taken, place++)) seen.insert(letter);
    });
    if (seen.size() > most_tokens)
      throw DataError("it has " + std::to_string(seen.size()) +
                      " distinct characters; at most 65536 are supported");
    for (const std::string_view letter : seen) add(std::string(letter));
  }
  explicit Characters(const std::vector<std::string>& letters) {
    for (const std::string& letter : letters) add(letter);
  }

  std::int64_t size() const override { return std::ssize(letters_); }
  std::vector<Lost> encode(std::string_view text, std::vector<std::uint16_t>& tokens) override {
    std::vector<Lost> lost;
    each_character(text, [&](std::string_view letter) {
      const auto found = tokens_.find(std::string(letter));
      if (found == tokens_.end()) lost.push_back({tokens.size(), letter});
      tokens.push_back(found == tokens_.end() ? std::uint16_t{0} : found->second);
    });
    return lost;
  }
  std::string decode(std::uint16_t token) const override { return letters_.at(token); }
  Table to_table() const override {
    return table_of("char", "tokens", Array(letters_.begin(), letters_.end()));
  }

 private:
  void add(std::string letter) {
    tokens_.emplace(letter, static_cast<std::uint16_t>(letters_.size()));
    letters_.push_back(std::move(letter));
  }
  std::vector<std::string> letters_;
  std::unordered_map<std::string, std::uint16_t> tokens_;
};

/// What stands between blanks, and the ends of lines. Token 0 is <unk>.
class Words final : public Vocabulary {
 public:
  Words(const Wish& wish, std::string_view text, const std::vector<bool>& taken) {
    std::unordered_map<std::string_view, std::int64_t> counts;
    std::size_t place = 0;
    each(text, [&](std::string_view word) {
      if (is_taken(taken, place++)) ++counts[word];
    });
    std::vector<std::pair<std::int64_t, std::string_view>> words;
    for (const auto& [word, count] : counts)
      if (count >= wish.least_count && word != unknown) words.emplace_back(-count, word);
    std::sort(words.begin(), words.end());
    const std::size_t most = wish.most > 0 ? static_cast<std::size_t>(wish.most) : most_tokens;
    add(std::string(unknown));
    for (const auto& [count, word] : words)
      if (words_.size() < most) add(std::string(word));
  }
  explicit Words(const std::vector<std::string>& words) {
    for (const std::string& word : words) add(word);
  }

  std::int64_t size() const override { return std::ssize(words_); }
  std::vector<Lost> encode(std::string_view text, std::vector<std::uint16_t>& tokens) override {
    std::vector<Lost> lost;
    each(text, [&](std::string_view word) {
      const auto found = tokens_.find(std::string(word));
      if (found == tokens_.end()) lost.push_back({tokens.size(), word});
      tokens.push_back(found == tokens_.end() ? std::uint16_t{0} : found->second);
    });
    return lost;
  }
  bool has_unknown() const override { return true; }
  std::string decode(std::uint16_t token) const override {
    return words_.at(token) == "\n" ? "\n" : words_[token] + " ";
  }
  Table to_table() const override { return table_of("word", "tokens", Array(words_.begin(), words_.end())); }

  /// Calls tell(word) for each.
  template <class Tell>
  static void each(std::string_view text, Tell&& tell) {
    for (std::size_t at = 0; at < text.size();) {
      if (text[at] == '\n') tell(text.substr(at, 1));
      if (std::string_view(" \t\r\n").find(text[at]) != std::string_view::npos) {
        ++at;
        continue;
      }
      const std::size_t end = std::min(text.find_first_of(" \t\r\n", at), text.size());
      const std::string_view word = text.substr(at, end - at);
      if (const auto bad = datasets::first_invalid(word))
        throw DataError("byte " + std::to_string(at + *bad) +
                        " is not valid UTF-8: convert the file, or set level = \"bpe\"");
      tell(word);
      at = end;
    }
  }

 private:
  static constexpr std::string_view unknown = "<unk>";

  void add(std::string word) {
    tokens_.emplace(word, static_cast<std::uint16_t>(words_.size()));
    words_.push_back(std::move(word));
  }
  std::vector<std::string> words_;
  std::unordered_map<std::string, std::uint16_t> tokens_;
};

class Pairs final : public Vocabulary {
 public:
  explicit Pairs(Merges merges) : merges_(std::move(merges)) {
    for (std::uint16_t token = 0; token < 256; ++token)
      texts_.emplace_back(1, static_cast<char>(byte_of_token(token)));
    for (const auto& [left, right] : merges_) {
      ranks_.emplace(static_cast<std::uint32_t>(left) << 16 | right, texts_.size());
      texts_.push_back(texts_.at(left) + texts_.at(right));
    }
  }

  std::int64_t size() const override { return std::ssize(texts_); }
  std::vector<Lost> encode(std::string_view text, std::vector<std::uint16_t>& tokens) override {
    while (!text.empty()) {
      const std::string_view part = next_part(text);
      text.remove_prefix(part.size());
      const std::vector<std::uint16_t>& known = tokens_of(part);
      tokens.insert(tokens.end(), known.begin(), known.end());
    }
    return {};
  }
  std::string decode(std::uint16_t token) const override { return texts_.at(token); }
  Table to_table() const override {
    Array flat;
    for (const auto& [left, right] : merges_) {
      flat.emplace_back(static_cast<std::int64_t>(left));
      flat.emplace_back(static_cast<std::int64_t>(right));
    }
    return table_of("bpe", "merges", std::move(flat));
  }

 private:
  const std::vector<std::uint16_t>& tokens_of(std::string_view part) {
    constexpr std::size_t most_kept = 1 << 18;
    const auto known = cache_.find(std::string(part));
    if (known != cache_.end()) return known->second;
    if (cache_.size() > most_kept) cache_.clear();
    std::vector<std::uint16_t> tokens;
    for (const char byte : part) tokens.push_back(token_of_byte(static_cast<std::uint8_t>(byte)));
    while (merge_first(tokens)) continue;
    return cache_.emplace(std::string(part), std::move(tokens)).first->second;
  }

  /// The pair that was merged first in training, wherever it stands; false where there is none.
  bool merge_first(std::vector<std::uint16_t>& tokens) const {
    std::size_t best = most_tokens;
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i)
      if (const auto rank = ranks_.find(static_cast<std::uint32_t>(tokens[i]) << 16 | tokens[i + 1]);
          rank != ranks_.end())
        best = std::min(best, rank->second);
    if (best == most_tokens) return false;
    const auto [left, right] = merges_[best - 256];
    std::size_t out = 0;
    for (std::size_t in = 0; in < tokens.size(); ++in) {
      const bool both = in + 1 < tokens.size() && tokens[in] == left && tokens[in + 1] == right;
      tokens[out++] = both ? static_cast<std::uint16_t>(best) : tokens[in];
      in += both ? 1 : 0;
    }
    tokens.resize(out);
    return true;
  }

  Merges merges_;
  std::vector<std::string> texts_;  ///< of the tokens
  std::unordered_map<std::uint32_t, std::size_t> ranks_;
  std::unordered_map<std::string, std::vector<std::uint16_t>> cache_;
};

[[noreturn]] void fail_damaged() {
  throw DataError("what was learned of the text is damaged, or of a newer version of this plugin");
}

std::vector<std::string> texts_in(const Table& table) {
  const Value* const value = table.find("tokens");
  if (value == nullptr || value->get_if<Array>() == nullptr || value->as<Array>().size() > most_tokens)
    fail_damaged();
  std::vector<std::string> texts;
  for (const Value& each : value->as<Array>()) {
    if (each.get_if<std::string>() == nullptr) fail_damaged();
    texts.push_back(each.as<std::string>());
  }
  return texts;
}

const std::string& file_in(const Table& table) {
  const Value* const value = table.find("file");
  if (value == nullptr || value->get_if<std::string>() == nullptr) fail_damaged();
  return value->as<std::string>();
}

Merges merges_in(const Table& table) {
  const Value* const value = table.find("merges");
  if (value == nullptr) return {};
  if (value->get_if<Array>() == nullptr) fail_damaged();
  const Array& flat = value->as<Array>();
  Merges merges;
  const auto token = [&](std::size_t i) {
    const auto* number = flat[i].get_if<std::int64_t>();
    if (number == nullptr || *number < 0 || static_cast<std::size_t>(*number) >= 256 + merges.size())
      fail_damaged();
    return static_cast<std::uint16_t>(*number);
  };
  if (flat.size() % 2 != 0 || flat.size() / 2 > most_tokens - 256) fail_damaged();
  for (std::size_t i = 0; i < flat.size(); i += 2) {
    const std::uint16_t left = token(i), right = token(i + 1);
    merges.emplace_back(left, right);
  }
  return merges;
}

}  // namespace

std::size_t count_units(const std::string& level, std::string_view text) {
  std::size_t count = 0;
  const auto add = [&](std::string_view) { ++count; };
  level == "word" ? Words::each(text, add) : each_character(text, add);
  return count;
}

std::string_view characters_between(std::string_view text, std::size_t begin, std::size_t end) {
  std::size_t place = 0, first = text.size(), last = text.size();
  each_character(text, [&](std::string_view letter) {
    const auto at = static_cast<std::size_t>(letter.data() - text.data());
    if (place == begin) first = at;
    if (place == end) last = at;
    ++place;
  });
  return text.substr(first, last - first);
}

std::unique_ptr<Vocabulary> learn(const Wish& wish, std::string_view text, const std::vector<bool>& taken) {
  if (wish.level == "char") return std::make_unique<Characters>(text, taken);
  if (wish.level == "word") return std::make_unique<Words>(wish, text, taken);
  if (wish.level == "byte") return std::make_unique<Bytes>();
  const std::int64_t size = wish.most > 0 ? wish.most : 4096;
  return std::make_unique<Pairs>(
      learn_merges(text, static_cast<std::size_t>(std::max<std::int64_t>(size - 256, 0))));
}

std::unique_ptr<Vocabulary> from_table(const Table& table, const std::string& level) {
  const Value* const format = table.find("format");
  const Value* const of = table.find("level");
  if (format == nullptr || format->get_if<std::int64_t>() == nullptr || format->as<std::int64_t>() != 1 ||
      of == nullptr || of->get_if<std::string>() == nullptr)
    fail_damaged();
  if (of->as<std::string>() != level)
    throw trainyard::ConfigError("level is \"" + level + "\", and the run was trained with level = \"" +
                                 of->as<std::string>() + "\": leave it as it was");
  if (level == "byte") return std::make_unique<Bytes>();
  if (level == "tokenizer")
    return tokenizer_of(file_in(table), "the tokenizer that the run was trained with");
  if (level == "char") return std::make_unique<Characters>(texts_in(table));
  if (level == "word") return std::make_unique<Words>(texts_in(table));
  return std::make_unique<Pairs>(merges_in(table));
}

}  // namespace text
