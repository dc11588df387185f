// A description and numbers by name as a safetensors file: numbers as F64, the description as U8, and a digest of the
// numbers.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "archive.hpp"

namespace screen {

struct NumbersFile {
  std::string text;  ///< a table of JSON; empty: the file has none
  Archive::Numbers numbers;

  /// Returns whether the numbers are those that were written; `parsed` is the text.
  bool is_whole(const nlohmann::json& parsed) const;
};

/// The file appears at its place when it is whole. Throws DataError where it cannot be written.
void write_numbers(const std::string& path, nlohmann::json text, const Archive::Numbers& numbers);
/// Throws DataError where there is no file of this form.
NumbersFile read_numbers(const std::string& path);

}  // namespace screen
