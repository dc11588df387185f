// The records of a file of separated values: RFC 4180, with or without a byte order mark, whatever ends a line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "../files.hpp"

namespace csv {

class Records {
 public:
  /// Leaves the first `skip` lines out. `file` outlives it.
  Records(datasets::files::Reader& file, char separator, std::int64_t skip)
      : file_(file), separator_(separator), skip_(skip) {}

  /// The next record, of as many fields as the first; false behind the last. Lines that are blank do not count, and blanks around a field neither;
  /// a field in quotes may hold separators, lines (each ends with LF then) and, doubled, quotes. A field is a string or a Cell. Throws DataError.
  template <class Field>
  bool next(std::vector<Field>& fields);

  /// That the record begins in, from 1.
  std::int64_t line() const { return begin_; }
  const std::string& path() const { return file_.path(); }

  /// Throws DataError with file and line, or that the file is damaged.
  [[noreturn]] void fail(const std::string& message) const;

 private:
  bool read_line();
  /// From behind its first quote on; gives the place behind its last.
  std::size_t quoted(std::size_t from, std::string& field);

  datasets::files::Reader& file_;
  char separator_;
  std::int64_t skip_, at_ = 0, begin_ = 0;
  std::size_t count_ = 0;  ///< of fields; 0: not known yet
  std::string line_;
};

}  // namespace csv
