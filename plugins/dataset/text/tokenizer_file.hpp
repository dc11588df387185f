// Vocabularies that others have learned: tokenizer.json of Hugging Face's tokenizers.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "vocabulary.hpp"

namespace text {

/// What such a file says: pairs of bytes (BPE) on pieces of text that GPT-2's expression cuts, and tokens that were added.
/// Tokens that a post-processor puts around a text are not put in, as a file is one run of text. Throws DataError where it
/// is no such file, and ConfigError, with the part's name, where it asks for something else.
std::unique_ptr<Vocabulary> tokenizer_of(const std::string& content, const std::string& path);

/// The piece that a text begins with, by GPT-2's expression
/// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+. The text is UTF-8, and not empty.
std::string_view gpt2_piece(std::string_view text);

/// Whether a text is a single character that Unicode has among the numbers (N).
bool is_number(std::string_view character);

}  // namespace text
