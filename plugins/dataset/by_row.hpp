// A number for each row of some data, from a file whose rows say which of them they are of: what `trainyard screen`
// writes.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "csv/records.hpp"

namespace datasets {

/// What a column may hold, and how messages say it.
struct Allowed {
  double most = 0.0;  ///< it is never below 0
  bool whole = false;
  const char* text = "";
};

/// Reads a CSV file, plain or .gz, with a header: the column `row` has each number from 1 to the number of its rows
/// once. Returns what `column` has for row 1, 2, ... Throws DataError with file and line.
inline std::vector<double> read_by_row(const std::string& path, const std::string& column,
                                       const Allowed& allowed) {
  files::Reader file(path);
  csv::Records records(file, ',', 0);
  std::vector<std::string> fields;
  if (!records.next(fields)) throw trainyard::DataError(path + ": the file is empty");
  const auto place_of = [&](const std::string& name) {
    const auto found = std::ranges::find(fields, name);
    if (found == fields.end())
      records.fail("there is no column \"" + name + "\": expected a file as `trainyard screen` writes it");
    return static_cast<std::size_t>(found - fields.begin());
  };
  const std::size_t row_at = place_of("row"), value_at = place_of(column);
  const auto number = [&](std::size_t at, const Allowed& expected) {
    const std::string& text = fields[at];
    double value = 0.0;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || rest != text.data() + text.size() ||
        !(value >= 0.0 && value <= expected.most) || (expected.whole && value != std::floor(value)))
      records.fail("has \"" + text + "\": expected " + expected.text);
    return value;
  };
  constexpr double most_rows = 9007199254740992.0;
  std::vector<std::pair<std::int64_t, double>> found;
  while (records.next(fields))
    found.emplace_back(
        static_cast<std::int64_t>(number(row_at, {most_rows, true, "the number of a row, from 1"})),
        number(value_at, allowed));
  std::ranges::sort(found);
  std::vector<double> values;
  for (const auto& [row, value] : found) {
    values.push_back(value);
    if (row != std::ssize(values))
      throw trainyard::DataError(path + " has " + std::to_string(found.size()) +
                                 " rows, and none of them is row " + std::to_string(values.size()) +
                                 ": expected each from 1 to " + std::to_string(found.size()) + " once");
  }
  return values;
}

}  // namespace datasets
