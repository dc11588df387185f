// A description and numbers by name as a safetensors file: numbers as F64, the description as U8, and a digest of the
// numbers.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "archive.hpp"

namespace screen {

struct NumbersFile {
  nlohmann::json text;  ///< a table; null: the file has none
  Archive::Numbers numbers;

  /// Returns whether the numbers are those that were written.
  bool whole() const;
};

/// The file appears at its place when it is whole. Throws DataError where it cannot be written.
void write_numbers(const std::string& path, nlohmann::json text, const Archive::Numbers& numbers);
/// Throws DataError where there is no file of this form, nlohmann::json::exception for a text that is none.
NumbersFile read_numbers(const std::string& path);

}  // namespace screen
