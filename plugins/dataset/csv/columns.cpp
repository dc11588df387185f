#include "columns.hpp"

#include <algorithm>
#include <map>

#include <trainyard/error.hpp>

#include "../parsed.hpp"

namespace csv {

using datasets::shown;
using trainyard::Array;
using trainyard::ConfigError;
using trainyard::DataError;
using trainyard::Table;
using trainyard::Value;

namespace {

std::string column_text(std::size_t place, const std::string& name) {
  return "column " + std::to_string(place + 1) + (name.empty() ? "" : " \"" + name + "\"");
}

void check_names(const std::vector<std::string>& names, const std::string& path) {
  std::map<std::string, std::size_t> places;
  for (std::size_t place = 0; place < names.size(); ++place) {
    const auto [known, added] = places.emplace(names[place], place);
    if (!added && !names[place].empty())
      throw DataError(path + ": the columns " + std::to_string(known->second + 1) + " and " +
                      std::to_string(place + 1) + " are both called \"" + names[place] +
                      "\": rename one, or leave the names out with header = \"no\" and skip_rows = 1");
  }
}

}  // namespace

std::string Column::text() const {
  return column_text(place, name);
}

std::int64_t Columns::width() const {
  std::size_t width = 0;
  for (const Column& column : features) width += column.width();
  return static_cast<std::int64_t>(width);
}

std::string Columns::target_text() const {
  return column_text(target, names.empty() ? "" : names[target]);
}

/// What mends a file of one column in whose name another separator stands; empty else.
std::string separator_hint(const Columns& columns) {
  if (columns.count != 1 || columns.names.empty()) return {};
  const std::size_t at = columns.names.front().find_first_of(";\t|");
  if (at == std::string::npos) return {};
  const char found = columns.names.front()[at];
  return std::string(": set separator = \"") + (found == '\t' ? std::string("\\t") : std::string(1, found)) +
         "\"";
}

std::size_t find_column(const Columns& columns, const std::string& text, const char* option,
                        const std::string& path) {
  const auto name = std::find(columns.names.begin(), columns.names.end(), text);
  if (name != columns.names.end()) return static_cast<std::size_t>(name - columns.names.begin());
  const auto count = static_cast<std::int64_t>(columns.count);
  const auto index = datasets::parsed<std::int64_t>(text);
  if (!index || *index < -count || *index >= count)
    throw ConfigError(std::string(option) + ": no column " + shown(text) + " in " + path + ", which has " +
                      std::to_string(count) + (count == 1 ? " column" : " columns") +
                      (columns.names.empty()
                           ? " and no header"
                           : ", from \"" + columns.names.front() + "\" to \"" + columns.names.back() + "\"") +
                      separator_hint(columns));
  return static_cast<std::size_t>(*index < 0 ? *index + count : *index);
}

Columns choose(const Source& source, const Options& options) {
  const std::string& path = source.path();
  Columns columns;
  columns.count = source.count();
  columns.names = source.names();
  check_names(columns.names, path);
  columns.target = find_column(columns, options.target, "target", path);
  std::vector<bool> excluded(columns.count);
  excluded[columns.target] = true;
  for (const std::string& text : options.exclude) {
    const std::size_t place = find_column(columns, text, "exclude", path);
    if (place == columns.target) throw ConfigError("exclude names the target " + shown(options.target));
    excluded[place] = true;
  }
  const auto add = [&](std::size_t place) {
    columns.features.emplace_back();
    columns.features.back().place = place;
    if (!columns.names.empty()) columns.features.back().name = columns.names[place];
  };
  for (const std::string& text : options.columns) {
    const std::size_t place = find_column(columns, text, "columns", path);
    if (place == columns.target)
      throw ConfigError("columns names the target " + shown(options.target) + " as a feature");
    if (!excluded[place]) add(place);
  }
  if (options.columns.empty())
    for (std::size_t place = 0; place < columns.count; ++place)
      if (!excluded[place]) add(place);
  if (columns.features.empty())
    throw DataError(
        path + ": no column but the target is left of its " + std::to_string(columns.count) +
        (columns.count == 1 ? "; is the separator right?" + separator_hint(columns) : ": exclude fewer"));
  for (const std::string& text : options.categorical) {
    const std::size_t place = find_column(columns, text, "categorical", path);
    for (Column& column : columns.features) column.categorical |= column.place == place;
  }
  return columns;
}

std::vector<std::size_t> places(const Columns& columns) {
  std::vector<std::size_t> found = {columns.target};
  for (const Column& column : columns.features) found.push_back(column.place);
  return found;
}

void sort_levels(std::vector<std::string>& levels) {
  const bool numbers =
      std::all_of(levels.begin(), levels.end(), [](const std::string& each) { return number(each); });
  std::sort(levels.begin(), levels.end());
  if (numbers)
    std::stable_sort(levels.begin(), levels.end(),
                     [](const std::string& a, const std::string& b) { return *number(a) < *number(b); });
}

Table to_table(const Columns& columns) {
  Table table;
  table.set("format", 1);
  table.set("names", Array(columns.names.begin(), columns.names.end()));
  table.set("count", static_cast<std::int64_t>(columns.count));
  table.set("target", static_cast<std::int64_t>(columns.target));
  table.set("labels", Array(columns.labels.begin(), columns.labels.end()));
  if (!columns.seen.empty()) table.set("seen", Array(columns.seen.begin(), columns.seen.end()));
  table.set("target_mean", columns.target_mean);
  table.set("target_deviation", columns.target_deviation);
  Array features;
  for (const Column& column : columns.features) {
    Table each;
    each.set("name", column.name);
    each.set("place", static_cast<std::int64_t>(column.place));
    each.set("indicator", column.indicator);
    if (column.categorical) {
      each.set("levels", Array(column.levels.begin(), column.levels.end()));
      if (column.fill_level) each.set("fill", *column.fill_level);
    } else {
      if (column.fill) each.set("fill", *column.fill);
      each.set("mean", column.mean);
      each.set("deviation", column.deviation);
    }
    features.emplace_back(std::move(each));
  }
  table.set("features", std::move(features));
  return table;
}

namespace {

template <class T>
const T& take(const Table& table, const char* key) {
  const Value* value = table.find(key);
  const T* held = value != nullptr ? value->get_if<T>() : nullptr;
  if (held == nullptr)
    throw DataError(std::string("what was learned of the table has no `") + key + "` of the right type");
  return *held;
}

double take_number(const Table& table, const char* key) {
  const Value* value = table.find(key);
  if (value != nullptr)
    if (const auto* integer = value->get_if<std::int64_t>()) return static_cast<double>(*integer);
  return take<double>(table, key);
}

std::vector<std::string> take_texts(const Table& table, const char* key) {
  std::vector<std::string> texts;
  for (const Value& each : take<Array>(table, key)) {
    if (each.get_if<std::string>() == nullptr)
      throw DataError(std::string("what was learned of the table has a `") + key + "` that is no text");
    texts.push_back(each.as<std::string>());
  }
  return texts;
}

std::size_t take_place(const Table& table, const char* key, std::size_t below) {
  const auto place = take<std::int64_t>(table, key);
  if (place < 0 || static_cast<std::size_t>(place) >= below)
    throw DataError(std::string("what was learned of the table has a `") + key + "` out of range");
  return static_cast<std::size_t>(place);
}

Column column_from(const Table& table, std::size_t count) {
  Column column;
  column.name = take<std::string>(table, "name");
  column.place = take_place(table, "place", count);
  column.indicator = take<bool>(table, "indicator");
  column.categorical = table.find("levels") != nullptr;
  if (column.categorical) {
    column.levels = take_texts(table, "levels");
    if (table.find("fill") != nullptr) column.fill_level = take<std::string>(table, "fill");
  } else {
    if (table.find("fill") != nullptr) column.fill = take_number(table, "fill");
    column.mean = take_number(table, "mean");
    column.deviation = take_number(table, "deviation");
  }
  return column;
}

}  // namespace

Columns from_table(const Table& table) {
  Columns columns;
  if (take<std::int64_t>(table, "format") != 1)
    throw DataError("what was learned of the table is of a newer version of this plugin");
  columns.names = take_texts(table, "names");
  columns.count = take_place(table, "count", 1 << 24);
  columns.target = take_place(table, "target", columns.count);
  columns.labels = take_texts(table, "labels");
  if (table.find("target_deviation") != nullptr) {
    columns.target_mean = take_number(table, "target_mean");
    columns.target_deviation = take_number(table, "target_deviation");
  }
  if (table.find("seen") != nullptr)
    for (const Value& each : take<Array>(table, "seen"))
      if (const auto* number = each.get_if<std::int64_t>()) columns.seen.push_back(*number);
  for (const Value& each : take<Array>(table, "features")) {
    if (each.get_if<Table>() == nullptr)
      throw DataError("what was learned of the table has a damaged column");
    columns.features.push_back(column_from(each.as<Table>(), columns.count));
  }
  if (!columns.names.empty() && columns.names.size() != columns.count)
    throw DataError("what was learned of the table has other names than columns");
  return columns;
}

}  // namespace csv
