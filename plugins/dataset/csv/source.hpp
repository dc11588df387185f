// Where the rows of a table come from.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <trainyard/error.hpp>

#include "cell.hpp"

namespace csv {

/// The rows of one table, from the first to the last.
class Source {
 public:
  virtual ~Source() = default;

  /// Of the columns; empty: it has none.
  const std::vector<std::string>& names() const { return names_; }
  /// How many columns there are; 0: the file is empty.
  std::size_t count() const { return count_; }

  /// Called ahead of next(): the cells of these columns alone are looked at. Throws DataError where one of them
  /// holds what is neither text nor number.
  virtual void want(const std::vector<std::size_t>&) {}
  /// Fills one cell a column in; false behind the last row. Throws DataError.
  virtual bool next(std::vector<Cell>& row) = 0;

  /// Where the last row is, from 1.
  virtual std::int64_t line() const = 0;
  /// The word for that: "line".
  virtual const char* unit() const = 0;
  virtual const std::string& path() const = 0;
  /// How many bytes were read, and of how many; 0: nobody knows.
  virtual std::pair<std::int64_t, std::int64_t> progress() const = 0;
  /// Throws DataError that says where.
  [[noreturn]] void fail(const std::string& message) const {
    check_rest();
    throw trainyard::DataError(path() + (line() > 0 ? ":" + std::to_string(line()) : "") + ": " + message);
  }

 protected:
  /// Throws DataError where the file is damaged, which explains whatever was read of it.
  virtual void check_rest() const {}

  std::vector<std::string> names_;
  std::size_t count_ = 0;
};

}  // namespace csv
