// Tables of text files, as far as they are numbers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "matrix.hpp"

namespace screen {

struct NumberTable {
  std::vector<std::string> names;  ///< of the columns of numbers; "column 3" where the file has no header
  Matrix numbers;
  std::vector<double> labels;         ///< of the label column; empty where none was named
  std::vector<std::string> texts;     ///< columns of text, which were left out
  std::vector<std::int64_t> samples;  ///< of a run: the number of each row in the dataset; empty: of a file
  std::int64_t all = 0;               ///< samples of that dataset
};

struct TableOptions {
  std::vector<std::string> ignore;  ///< columns that are left out, by name or by place from 1
  std::string label;                ///< column of 0 and 1 that is not a feature; empty: none
};

/// Reads a CSV file, plain or .gz. Throws DataError with file, line and column for a gap, a text among numbers, or a
/// number that is not finite, and where there is no row or no column of numbers; ConfigError for a column that is not
/// there. `stopping`: whether to give up; the table is then not whole.
NumberTable read_table(const std::string& path, const TableOptions& options,
                       const std::function<bool()>& stopping);

/// Returns the columns of a table by these names, in their order. Throws DataError that says which are missing.
Matrix pick_columns(const NumberTable& table, const std::vector<std::string>& names, const std::string& path);

}  // namespace screen
