// Data that is not the run's: samples that a user has now and wants predictions for. A dataset that can read
// it, as it reads its own splits, is found by its type: dynamic_cast<ReadsNewData*>(&dataset).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <trainyard/batch.hpp>
#include <trainyard/contract.hpp>
#include <trainyard/error.hpp>

TRAINYARD_CONTRACT("new_data.hpp");

namespace trainyard {

/// Reads a file, a folder or a stream from its beginning to its end in memory that does not grow with it. One
/// thread. Throws DataError that names file and place.
class NewData {
 public:
  virtual ~NewData() = default;

  /// Returns the next samples, at most `most`, on the CPU: inputs as schema() says, and no target; `indices`
  /// counts the samples of this object from 0. At the end it returns a batch of no samples.
  virtual Batch next(std::int64_t most) = 0;

  /// Returns a readable name for a sample of the last batch, by its place in it: its file, or its row.
  virtual std::string name(std::int64_t sample) const = 0;

  /// Asks for a column of a table, by its name or its place from 0, whose texts go along with the samples. Called
  /// before next(). Throws DataError where the data has none such.
  virtual void carry(const std::string& column) {
    throw DataError("the data has no columns that could go along, such as \"" + column + "\"");
  }
  /// Returns the text of that column for a sample of the last batch.
  virtual std::string carried(std::int64_t) const { return {}; }

  /// Returns how much was read, and of how much, in bytes or files; a total of 0: nobody knows.
  virtual std::pair<std::int64_t, std::int64_t> progress() const { return {0, 0}; }
};

/// A dataset that is open. All calls are of one thread.
class ReadsNewData {
 public:
  virtual ~ReadsNewData() = default;

  /// Opens new data; "-" is standard input. Throws DataError that says what does not fit the trained run.
  virtual std::unique_ptr<NewData> read_new(const std::string& path) const = 0;

  /// Returns the names of the classes, in their order; empty: they are numbers.
  virtual std::vector<std::string> class_names() const { return {}; }
};

/// Datasets of tokens implement it: turns text into tokens and back.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  virtual std::vector<std::int64_t> encode(std::string_view text) const = 0;
  virtual std::string decode(const std::vector<std::int64_t>& tokens) const = 0;
  /// Returns the token that stands for what has none of its own; nothing where every text has tokens.
  virtual std::optional<std::int64_t> unknown() const { return std::nullopt; }
};

}  // namespace trainyard
