// Files of answers: CSV, JSON lines, npy.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "answers.hpp"

namespace predict {

class Writer {
 public:
  virtual ~Writer() = default;
  /// One answer a call, of as many numbers as the meaning has columns.
  virtual void add(const std::string& sample, std::span<const float> numbers) = 0;
  /// Writes what is left, and puts the file to its place.
  virtual void finish() = 0;
};

/// By the ending of the path: .csv, .jsonl, .npy; "-": CSV on standard output. A file stands at its place once it is
/// whole. Throws ConfigError for another ending, DataError where it cannot be written.
std::unique_ptr<Writer> open_writer(const std::string& path, Meaning meaning);

/// The row of an answer's largest number.
std::size_t largest(std::span<const float> numbers);

}  // namespace predict
