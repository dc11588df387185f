#include "table.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>

#include <trainyard/error.hpp>

#include "../../dataset/csv/records.hpp"

namespace screen {
namespace {

using trainyard::ConfigError;
using trainyard::DataError;

std::optional<double> number_of(const std::string& text) {
  const char* begin = text.data();
  const char* const end = begin + text.size();
  if (begin != end && *begin == '+') ++begin;
  double value = 0.0;
  const auto [rest, error] = std::from_chars(begin, end, value);
  if (begin == end || rest != end) return std::nullopt;
  if (error == std::errc::result_out_of_range) return HUGE_VAL;
  if (error != std::errc()) return std::nullopt;
  return value;
}

/// What a column was seen to hold.
struct Seen {
  std::string name;
  std::vector<double> values;
  std::int64_t numbers = 0;
  std::int64_t odd_line = 0, infinite_line = 0;  ///< first line that has no number, or none that is finite
  std::string odd_text, infinite_text;
};

class TableReader {
 public:
  TableReader(const std::string& path, const TableOptions& options) : path_(path), options_(options) {}

  NumberTable read(const std::function<bool()>& stopping) {
    datasets::files::Reader file(path_);
    csv::Records records(file, ',', 0);
    std::vector<std::string> fields;
    if (!records.next(fields)) throw DataError(path_ + ": the table is empty: there is no row of data");
    const bool header = std::ranges::any_of(
        fields, [](const std::string& text) { return !text.empty() && !number_of(text); });
    for (std::size_t j = 0; j < fields.size(); ++j)
      columns_.push_back({.name = header ? fields[j] : "column " + std::to_string(j + 1)});
    choose_columns();
    if (!header) add(fields, records.line());
    for (std::int64_t row = 0; records.next(fields); ++row) {
      if (row % 4096 == 0 && stopping()) return {};
      add(fields, records.line());
    }
    if (columns_.front().values.empty())
      throw DataError(path_ + ": the table is empty: it has a header and no row of data");
    return finish();
  }

 private:
  std::size_t place_of(const std::string& text, const char* option) const {
    for (std::size_t j = 0; j < columns_.size(); ++j)
      if (columns_[j].name == text) return j;
    std::size_t place = 0;
    const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), place);
    if (error == std::errc() && rest == text.data() + text.size() && place >= 1 && place <= columns_.size())
      return place - 1;
    throw ConfigError(std::string(option) + " names a column \"" + text + "\", and " + path_ +
                      " has none: expected a name of its header, or a number from 1 to " +
                      std::to_string(columns_.size()));
  }
  void choose_columns() {
    left_out_.assign(columns_.size(), 0);
    for (const std::string& text : options_.ignore) left_out_[place_of(text, "ignore")] = 1;
    if (options_.label.empty()) return;
    label_ = place_of(options_.label, "label");
    left_out_[*label_] = 0;
  }
  void add(const std::vector<std::string>& fields, std::int64_t line) {
    for (std::size_t j = 0; j < fields.size(); ++j) {
      Seen& column = columns_[j];
      const std::optional<double> value = number_of(fields[j]);
      column.values.push_back(value.value_or(0.0));
      column.numbers += value ? 1 : 0;
      if (!value && column.odd_line == 0) {
        column.odd_line = line;
        column.odd_text = fields[j];
      }
      if (value && !std::isfinite(*value) && column.infinite_line == 0) {
        column.infinite_line = line;
        column.infinite_text = fields[j];
      }
    }
  }
  [[noreturn]] void fail(const Seen& column, std::int64_t line, const std::string& what) const {
    throw DataError(path_ + ":" + std::to_string(line) + ": column \"" + column.name + "\" " + what);
  }
  void check(const Seen& column) const {
    if (column.odd_line > 0 && column.odd_text.empty())
      fail(column, column.odd_line,
           "has no value: fill the gap, take the row out, or leave the column out (ignore)");
    if (column.odd_line > 0)
      fail(column, column.odd_line,
           "has the text \"" + column.odd_text + "\" among " + std::to_string(column.numbers) +
               " numbers: mend it, or leave the column out (ignore)");
    if (column.infinite_line > 0)
      fail(column, column.infinite_line,
           "has the value \"" + column.infinite_text +
               "\", and a finite number was expected: mend it, take the row out, or leave the column out "
               "(ignore)");
  }
  NumberTable finish() {
    NumberTable table;
    std::vector<const Seen*> kept;
    for (std::size_t j = 0; j < columns_.size(); ++j) {
      Seen& column = columns_[j];
      if (left_out_[j] != 0) continue;
      if (label_ == j) {
        check(column);
        take_labels(column, table);
      } else if (column.numbers == 0) {
        table.texts.push_back(column.name);
      } else {
        check(column);
        table.names.push_back(column.name);
        kept.push_back(&column);
      }
    }
    if (kept.empty())
      throw DataError(path_ + ": no column holds numbers, so that there is nothing to compare rows by");
    table.numbers = Matrix(columns_.front().values.size(), kept.size());
    for (std::size_t j = 0; j < kept.size(); ++j)
      for (std::size_t i = 0; i < table.numbers.rows; ++i) table.numbers.row(i)[j] = kept[j]->values[i];
    return table;
  }
  void take_labels(const Seen& column, NumberTable& table) const {
    for (const double value : column.values)
      if (value != 0.0 && value != 1.0)
        throw DataError(path_ + ": column \"" + column.name +
                        "\" is the label and holds other numbers than 0 and 1 (1: an outlier)");
    table.labels = column.values;
  }

  const std::string& path_;
  const TableOptions& options_;
  std::vector<Seen> columns_;
  std::vector<std::uint8_t> left_out_;
  std::optional<std::size_t> label_;
};

}  // namespace

NumberTable read_table(const std::string& path, const TableOptions& options,
                       const std::function<bool()>& stopping) {
  return TableReader(path, options).read(stopping);
}

Matrix pick_columns(const NumberTable& table, const std::vector<std::string>& names,
                    const std::string& path) {
  if (table.names == names) return table.numbers;
  std::string missing;
  std::vector<std::size_t> places;
  for (const std::string& name : names) {
    const auto found = std::ranges::find(table.names, name);
    if (found == table.names.end())
      missing += (missing.empty() ? "\"" : ", \"") + name + "\"";
    else
      places.push_back(static_cast<std::size_t>(found - table.names.begin()));
  }
  if (!missing.empty())
    throw DataError(path + ": the pool was fitted to " + std::to_string(names.size()) +
                    " columns of numbers, the table has " + std::to_string(table.names.size()) +
                    ", and among them no " + missing +
                    ": give a table with the columns that the pool knows, or fit a pool to this one");
  Matrix picked(table.numbers.rows, names.size());
  for (std::size_t i = 0; i < picked.rows; ++i)
    for (std::size_t j = 0; j < places.size(); ++j) picked.row(i)[j] = table.numbers.at(i, places[j]);
  return picked;
}

}  // namespace screen
