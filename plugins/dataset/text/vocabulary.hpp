// Text as numbers and back: by bytes, characters, words, or pairs of bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <trainyard/value.hpp>

namespace text {

struct Wish {
  std::string level;             ///< byte, char, word, bpe
  std::int64_t most = 0;         ///< tokens of the vocabulary, of words and pairs
  std::int64_t least_count = 1;  ///< that a word comes in the training split
};

class Vocabulary {
 public:
  virtual ~Vocabulary() = default;

  virtual std::int64_t size() const = 0;
  /// Appends the tokens of the text; gives how many of it have no token of their own. Throws DataError for a text
  /// that it cannot take, with the byte where that is.
  virtual std::int64_t encode(std::string_view text, std::vector<std::uint16_t>& tokens) = 0;
  virtual std::string decode(std::uint16_t token) const = 0;
  /// What from_table() makes the same vocabulary of.
  virtual trainyard::Table to_table() const = 0;
};

/// What the text of a training split has. Throws DataError.
std::unique_ptr<Vocabulary> learn(const Wish& wish, std::string_view text);
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
