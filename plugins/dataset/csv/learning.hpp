// What the columns of a table hold, found by one pass over the training split.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "columns.hpp"

namespace csv {

class Learning {
 public:
  /// `columns`: chosen, with nothing learned yet; those marked categorical stay so.
  Learning(Columns columns, const Options& options, std::string path);

  void add(const std::vector<Cell>& row, std::int64_t line);

  /// What became of the columns. Throws DataError that names file, line and column, and the option that mends it.
  /// `warn` is told of what is odd.
  Columns finish(const std::function<void(const std::string&)>& warn);

 private:
  /// Where a text stands first.
  struct First {
    std::int64_t line = 0;
    std::string text;
  };
  struct Seen {
    std::int64_t numbers = 0, texts = 0, dates = 0, missing = 0;
    First number, other, date, gap, many;
    double mean = 0.0, squares = 0.0;  ///< of numbers / scale: Welford's running sums
    std::vector<double> values;        ///< where the median or the most frequent is asked for
    std::unordered_map<std::string, std::int64_t> levels;
    bool too_many = false;       ///< to be levels
    std::optional<double> only;  ///< where a cell was a number: the first of these
    bool varies = false;         ///< others of them are not that one

    void add(double value) {
      const double distance = value - mean;
      mean += distance / static_cast<double>(++numbers);
      squares += distance * (value - mean);
    }
    /// The value that all have; nothing where they differ.
    std::optional<std::string> same() const;
    double deviation() const { return std::sqrt(squares / static_cast<double>(numbers)); }
  };

  void add_value(const Column& column, Seen& seen, const Cell& cell, std::int64_t line);
  void settle_kind(Column& column, const Seen& seen) const;
  void settle_numbers(Column& column, Seen& seen) const;
  void settle_levels(Column& column, const Seen& seen) const;
  void settle_labels(const std::function<void(const std::string&)>& warn);
  void settle_target(const std::function<void(const std::string&)>& warn);
  void settle_seen();
  [[noreturn]] void fail(const Column& column, std::int64_t line, const std::string& message) const;

  Columns columns_;
  const Options& options_;
  const Gaps gaps_;
  const std::string path_;
  bool keeps_values_;
  Seen target_;                                            ///< where it is a number
  std::vector<Seen> seen_;                                 ///< of the features
  std::unordered_map<double, std::int64_t> numbers_;       ///< likewise, of cells that are numbers
  std::unordered_map<std::string, std::int64_t> targets_;  ///< and where each is first
};

/// The text that stands for a class: integers, however they are written, are one text.
std::string class_text(const std::string& text);

/// "2011-01-01", "1/2/99", "2011-01-01 12:30:00": three numbers with one sort of mark between them, and perhaps a
/// time.
bool is_date(std::string_view text);

}  // namespace csv
