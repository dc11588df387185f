// Text as numbers and back: by bytes, characters, words, or pairs of bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <trainyard/value.hpp>

namespace text {

inline constexpr std::size_t most_tokens = 1 << 16;  ///< of a vocabulary, as a token is 16 bits

struct Wish {
  std::string level;      ///< byte, char, word, bpe; those of a file are not learned (tokenizer_file.hpp)
  std::int64_t most = 0;  ///< tokens of the vocabulary, of words and pairs
  std::int64_t least_count = 1;  ///< that a word comes in the training split
};

/// A part of a text that has no token of its own.
struct Lost {
  std::size_t token = 0;  ///< its place among the tokens
  std::string_view text;
};

class Vocabulary {
 public:
  virtual ~Vocabulary() = default;

  virtual std::int64_t size() const = 0;
  /// Appends the tokens of the text; gives what has no token of its own, which becomes token 0. Throws DataError for a
  /// text that it cannot take, with the byte where that is.
  virtual std::vector<Lost> encode(std::string_view text, std::vector<std::uint16_t>& tokens) = 0;
  /// Whether token 0 stands for what has no token of its own.
  virtual bool has_unknown() const { return false; }
  virtual std::string decode(std::uint16_t token) const = 0;
  /// What from_table() makes the same vocabulary of.
  virtual trainyard::Table to_table() const = 0;
};

/// Characters or words of a text, one a token, in its order. Throws DataError for what is no UTF-8.
std::size_t count_units(const std::string& level, std::string_view text);
/// The characters from number `begin` up to number `end`, both from 0.
std::string_view characters_between(std::string_view text, std::size_t begin, std::size_t end);

/// What the text of a training split has. `taken`: which of its characters or words it learns from; empty: all. Throws
/// DataError.
std::unique_ptr<Vocabulary> learn(const Wish& wish, std::string_view text, const std::vector<bool>& taken);
/// Throws DataError where the table is damaged or of another level than `level`.
std::unique_ptr<Vocabulary> from_table(const trainyard::Table& table, const std::string& level);

/// Merges of pairs, in their order: token 256 + i stands for the two of merges[i]. By counts, and of equal ones the
/// pair of the lower tokens first (Sennrich et al. 2016, on bytes as in GPT-2; the order of Hugging Face's trainer).
/// The text is cut before it is counted: at white space, of which a word has the one blank ahead of it.
using Merges = std::vector<std::pair<std::uint16_t, std::uint16_t>>;
Merges learn_merges(std::string_view text, std::size_t count);

/// The parts that text is cut into: " ?[^ \t\r\n]+" or "[ \t\r\n]+".
std::string_view next_part(std::string_view text);

/// The token of a byte, and the byte of a token below 256: the order of GPT-2's first 256 tokens.
std::uint16_t token_of_byte(std::uint8_t byte);
std::uint8_t byte_of_token(std::uint16_t token);

}  // namespace text
