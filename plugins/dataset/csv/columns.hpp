// What a table is made of, as its training split has it: which columns are features, how each becomes numbers, and
// what the classes are called.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <trainyard/value.hpp>

#include "options.hpp"
#include "source.hpp"

namespace csv {

/// In the place of a level: a gap, where gaps are a level of their own.
inline constexpr const char* missing_level = "(missing)";

/// A column of features.
struct Column {
  std::string name;       ///< in the header; empty: none
  std::size_t place = 0;  ///< in the training file, from 0
  bool categorical = false;
  bool indicator = false;  ///< one more feature: 1 where there was a gap
  // Of numbers: (value / scale - mean) / deviation.
  std::optional<double> fill;  ///< in the place of a gap
  double mean = 0.0, deviation = 1.0;
  // Of categories: 1 for the level, 0 for the others; all 0 for one that is not there.
  std::vector<std::string> levels;  ///< ascending: by value where all are numbers, else by their bytes
  std::optional<std::string> fill_level;

  /// How many features it becomes.
  std::size_t width() const { return (categorical ? levels.size() : 1) + (indicator ? 1 : 0); }
  /// For messages: column 3 "age".
  std::string text() const;
};

struct Columns {
  std::vector<std::string> names;  ///< of the whole training file; empty: it has no header
  std::size_t count = 0;           ///< of its columns
  std::size_t target = 0;
  std::vector<Column> features;
  std::vector<std::string> labels;  ///< of the classes; empty: they are integers, or there are none
  double target_mean = 0.0, target_deviation = 1.0;  ///< of a number: (value - mean) / deviation is learned
  /// Where the options name the classes: those that the training split has, ascending; empty: all of them.
  std::vector<std::int64_t> seen;

  std::int64_t width() const;
  std::string target_text() const;
};

/// By name, or by index from 0 or from the end. Throws ConfigError that names `option`.
std::size_t find_column(const Columns& columns, const std::string& text, const char* option,
                        const std::string& path);

/// Target and features of a table. Throws Error.
Columns choose(const Source& source, const Options& options);

/// The places of its target and its features.
std::vector<std::size_t> places(const Columns& columns);

/// Sorts as levels and labels are.
void sort_levels(std::vector<std::string>& levels);

trainyard::Table to_table(const Columns& columns);
/// Throws DataError.
Columns from_table(const trainyard::Table& table);

}  // namespace csv
