#include "learning.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <trainyard/error.hpp>

#include "../parsed.hpp"
#include "../utf8.hpp"

namespace csv {

using datasets::shown;
using trainyard::DataError;

namespace {

constexpr std::size_t most_classes = 1 << 16;

/// How to name a column in an option.
std::string word_of(const Column& column) {
  return column.name.empty() ? "\"" + std::to_string(column.place) + "\"" : "\"" + column.name + "\"";
}
std::string option(const char* name, const Column& column) {
  return std::string(name) + " = [" + word_of(column) + "]";
}

double median(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*std::max_element(values.begin(), middle) + *middle) / 2;
}

/// The smallest of those that come most often.
double most_frequent(std::vector<double>& values) {
  std::sort(values.begin(), values.end());
  double best = values.front();
  std::ptrdiff_t most = 0;
  for (auto from = values.begin(); from != values.end();) {
    const auto to = std::upper_bound(from, values.end(), *from);
    if (to - from > most) most = to - from, best = *from;
    from = to;
  }
  return best;
}

}  // namespace

std::string class_text(const std::string& text) {
  const std::optional<double> value = number(text);
  constexpr double exact = 9007199254740992.0;  // 2^53
  if (!value || *value != std::floor(*value) || std::abs(*value) > exact) return text;
  return std::to_string(static_cast<std::int64_t>(*value));
}

bool is_date(std::string_view text) {
  const auto digits = [&](std::size_t least, std::size_t most) {
    std::size_t count = 0;
    while (count < text.size() && text[count] >= '0' && text[count] <= '9') ++count;
    if (count < least || count > most) return false;
    text.remove_prefix(count);
    return true;
  };
  if (!digits(1, 4) || text.empty()) return false;
  const char mark = text.front();
  if (mark != '-' && mark != '/' && mark != '.') return false;
  for (int part = 0; part < 2; ++part) {
    if (!text.starts_with(mark)) return false;
    text.remove_prefix(1);
    if (!digits(1, 4)) return false;
  }
  return text.empty() || ((text.front() == ' ' || text.front() == 'T') && text.find(':') != text.npos);
}

Learning::Learning(Columns columns, const Options& options, std::string path)
    : columns_(std::move(columns)),
      options_(options),
      gaps_(options.na_values),
      path_(std::move(path)),
      keeps_values_(options.missing == "median" || options.missing == "mode"),
      seen_(columns_.features.size()) {}

void Learning::fail(const Column& column, std::int64_t line, const std::string& message) const {
  throw DataError(path_ + ":" + (line > 0 ? std::to_string(line) + ":" : "") + " " + column.text() + ": " +
                  message);
}

void Learning::add(const std::vector<Cell>& row, std::int64_t line) {
  for (std::size_t f = 0; f < seen_.size(); ++f)
    add_value(columns_.features[f], seen_[f], row[columns_.features[f].place], line);
  const Cell& target = row[columns_.target];
  if (options_.classification() && targets_.size() + numbers_.size() <= most_classes && !gaps_(target)) {
    if (target.is_number())
      numbers_.try_emplace(*target.number(), line);
    else
      targets_.try_emplace(class_text(target.text()), line);
  }
  if (const std::optional<double> value = options_.classification() ? std::nullopt : target.number();
      value && std::isfinite(*value))
    target_.add(*value);
}

void Learning::add_value(const Column& column, Seen& seen, const Cell& cell, std::int64_t line) {
  const auto first = [&](First& place) {
    if (place.line == 0) place = {line, cell.text()};
  };
  if (gaps_(cell)) {
    ++seen.missing;
    return first(seen.gap);
  }
  const std::optional<double> value = column.categorical ? std::nullopt : cell.number();
  if (value) {
    if (!std::isfinite(*value)) fail(column, line, shown(cell.text()) + " is not a finite number");
    first(seen.number);
    seen.add(*value / options_.scale);
    if (keeps_values_) seen.values.push_back(*value);
    if (cell.is_number()) {
      if (!seen.only) seen.only = value;
      seen.varies |= *seen.only != *value;
      return;
    }
  } else {
    ++seen.texts;
    first(seen.other);
    if (is_date(cell.text())) {
      ++seen.dates;
      first(seen.date);
    }
  }
  if (seen.too_many) return;
  ++seen.levels[cell.text()];
  seen.too_many = seen.levels.size() > static_cast<std::size_t>(options_.max_levels);
  if (seen.too_many) first(seen.many);
}

std::optional<std::string> Learning::Seen::same() const {
  if (only) return varies || !levels.empty() ? std::nullopt : std::optional(printed(*only));
  return levels.size() == 1 ? std::optional(levels.begin()->first) : std::nullopt;
}

Columns Learning::finish(const std::function<void(const std::string&)>& warn) {
  for (std::size_t f = 0; f < seen_.size(); ++f) {
    Column& column = columns_.features[f];
    Seen& seen = seen_[f];
    if (seen.numbers + seen.texts == 0)
      fail(column, 0,
           "it has no value in the training split: leave it out with " + option("exclude", column));
    if (seen.missing > 0 && options_.missing == "error")
      fail(column, seen.gap.line,
           (seen.gap.text.empty() ? "the field is empty" : shown(seen.gap.text) + " stands for a gap") +
               "; say what takes its place with missing = \"median\", \"mean\", \"mode\" or \"constant\", "
               "leave "
               "the column out with " +
               option("exclude", column) + ", or say with na_values which texts are gaps");
    settle_kind(column, seen);
    column.indicator = options_.indicator && seen.missing > 0;
    column.categorical ? settle_levels(column, seen) : settle_numbers(column, seen);
    if (const std::optional<std::string> same = seen.same(); same && seen.missing == 0)
      warn(column.text() + " of " + path_ + " is " + shown(*same) + " everywhere: it tells nothing; " +
           option("exclude", column) + " leaves it out");
  }
  for (const auto& [number, line] : numbers_) targets_.try_emplace(class_text(printed(number)), line);
  options_.classification() ? settle_labels(warn) : settle_target(warn);
  return columns_;
}

/// Of categories where most of its texts are no numbers.
void Learning::settle_kind(Column& column, const Seen& seen) const {
  if (column.categorical || seen.texts == 0) return;
  if (seen.dates == seen.texts && seen.numbers == 0)
    fail(column, seen.date.line,
         shown(seen.date.text) + " is a date, which is no number: leave the column out with " +
             option("exclude", column) +
             ", write its year, month or weekday into columns of their own, or take "
             "each date for a category with " +
             option("categorical", column));
  if (seen.numbers >= seen.texts)
    fail(column, seen.other.line,
         shown(seen.other.text) + " is not a number, though " + std::to_string(seen.numbers) +
             (seen.numbers == 1 ? " value of the column is" : " values of the column are") +
             ": correct it, take it for a gap with na_values = [\"\", \"" + seen.other.text.substr(0, 40) +
             "\"], or say that the column holds categories with " + option("categorical", column));
  column.categorical = true;
}

void Learning::settle_numbers(Column& column, Seen& seen) const {
  if (options_.standardize || !options_.standardize_with.empty()) {
    column.mean = seen.mean;
    column.deviation = seen.deviation();
    if (column.deviation == 0.0) column.deviation = 1.0;  // a constant column becomes 0
  }
  if (options_.missing == "mean") column.fill = seen.mean * options_.scale;
  if (options_.missing == "median") column.fill = median(seen.values);
  if (options_.missing == "mode") column.fill = most_frequent(seen.values);
  if (options_.missing == "constant") column.fill = options_.constant;
}

void Learning::settle_levels(Column& column, const Seen& seen) const {
  if (seen.too_many)
    fail(column, seen.many.line,
         "more than " + std::to_string(options_.max_levels) + " different texts, the last of them " +
             shown(seen.many.text) + ": leave the column out with " + option("exclude", column) +
             ", or raise max_levels where they are categories");
  std::int64_t most = 0;
  for (const auto& [level, count] : seen.levels) {
    if (!datasets::is_utf8(level) || !datasets::is_utf8(column.name))
      fail(column, 0, "it holds what is no UTF-8: convert the file, as with iconv -f latin1 -t utf8");
    column.levels.push_back(level);
    if (count > most || (count == most && level < *column.fill_level))
      most = count, column.fill_level = level;
  }
  if (options_.missing == "constant" && seen.missing > 0) {
    column.levels.emplace_back(missing_level);
    column.fill_level = missing_level;
  }
  if (options_.missing == "error") column.fill_level.reset();
  sort_levels(column.levels);
}

/// Of classes that the options name: those that rows have.
void Learning::settle_seen() {
  if (targets_.size() > most_classes) return;  // which are not all of them
  for (std::size_t i = 0; i < options_.labels.size(); ++i)
    if (targets_.contains(options_.labels[i]) || targets_.contains(class_text(options_.labels[i])))
      columns_.seen.push_back(static_cast<std::int64_t>(i));
  if (options_.classes > 0)
    for (const auto& [text, line] : targets_)
      if (const auto number = datasets::parsed<std::int64_t>(text)) columns_.seen.push_back(*number);
  std::sort(columns_.seen.begin(), columns_.seen.end());
}

void Learning::settle_target(const std::function<void(const std::string&)>& warn) {
  if (target_.numbers == 0) return;  // reading it says what is wrong
  if (target_.squares == 0.0)
    warn(path_ + ": " + columns_.target_text() +
         ", the target, is the same number in all rows that training has: "
         "there is nothing to learn");
  if (!options_.standardize_target) return;
  columns_.target_mean = target_.mean;
  if (target_.squares > 0.0) columns_.target_deviation = target_.deviation();
}

void Learning::settle_labels(const std::function<void(const std::string&)>& warn) {
  if (!options_.labels.empty()) columns_.labels = options_.labels;
  if (!options_.labels.empty() || options_.classes > 0) return settle_seen();
  std::size_t fractions = 0;
  for (const auto& [text, line] : targets_) {
    const std::optional<double> value = number(text);
    if (value && *value != std::floor(*value)) ++fractions;
    columns_.labels.push_back(text);
  }
  const std::string where = path_ + ": " + columns_.target_text() + ": ";
  if (fractions > 0)
    for (const auto& [text, line] : targets_)
      if (const std::optional<double> value = number(text); value && *value != std::floor(*value))
        throw DataError(path_ + ":" + std::to_string(line) + ": " + columns_.target_text() + ": " +
                        shown(text) +
                        " is not a class: classes are texts or integers; set task = \"regression\" where the "
                        "target is a number");
  if (columns_.labels.empty()) throw DataError(where + "it has no value: there is no class to learn");
  if (columns_.labels.size() > most_classes)
    throw DataError(where + "more than " + std::to_string(most_classes) +
                    " different classes: set task = \"regression\", or give their number in classes");
  if (columns_.labels.size() == 1)
    warn(
        where + "all rows that training has are of one class, " + shown(columns_.labels.front()) +
        ": there is nothing to learn; is it the target that is meant, and does `take` leave rows of others?");
  sort_levels(columns_.labels);
}

}  // namespace csv
