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
  /// One answer a call, of as many numbers as the meaning has columns; `id`: what goes along, if anything does.
  virtual void add(const std::string& sample, std::span<const float> numbers, const std::string& id = {}) = 0;
  /// Writes what is left, and puts the file to its place.
  virtual void finish() = 0;
};

/// By the ending of the path: .csv, .jsonl, .npy; "-": CSV on standard output. A file stands at its place once it is
/// whole. `id` names the column that goes along; empty: none does. Throws ConfigError for another ending, for a name that
/// another column has and for an npy file with texts, DataError where it cannot be written.
std::unique_ptr<Writer> open_writer(const std::string& path, Meaning meaning, const std::string& id = {});

/// The row of an answer's largest number.
std::size_t largest(std::span<const float> numbers);

}  // namespace predict
