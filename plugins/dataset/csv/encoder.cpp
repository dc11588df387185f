#include "encoder.hpp"

#include <algorithm>
#include <cmath>

#include <trainyard/error.hpp>

#include "../parsed.hpp"
#include "learning.hpp"

namespace csv {

using datasets::shown;
using trainyard::ConfigError;

namespace {

constexpr std::size_t most_named = 5;  // in a message

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), most_named); ++i)
    text += (i == 0 ? "\"" : ", \"") + names[i] + "\"";
  return names.size() > most_named ? text + " and " + std::to_string(names.size() - most_named) + " more"
                                   : text;
}

}  // namespace

Encoder::Encoder(const Columns& columns, const Options& options)
    : columns_(columns),
      options_(options),
      gaps_(options.na_values),
      levels_(columns.features.size()),
      unseen_(columns.features.size()) {
  const auto numbers =
      static_cast<std::size_t>(std::count_if(columns.features.begin(), columns.features.end(),
                                             [](const Column& each) { return !each.categorical; }));
  const auto given = [&](const std::vector<double>& list, std::size_t which, double otherwise,
                         const char* name) {
    if (list.empty()) return otherwise;
    if (list.size() != 1 && list.size() != numbers)
      throw ConfigError(std::string(name) + " has " + std::to_string(list.size()) + " numbers, " +
                        options.path + " has " + std::to_string(numbers) +
                        " features that are numbers: give one number or one a feature");
    return list.size() == 1 ? list[0] : list[which];
  };
  std::size_t which = 0;
  for (std::size_t f = 0; f < columns.features.size(); ++f) {
    const Column& column = columns.features[f];
    normals_.push_back({column.mean, column.deviation});
    for (std::size_t i = 0; i < column.levels.size(); ++i) levels_[f].emplace(column.levels[i], i);
    if (column.categorical) continue;
    if (!options.mean.empty() || !options.std.empty())
      normals_.back() = {given(options.mean, which, 0.0, "mean"), given(options.std, which, 1.0, "std")};
    ++which;
  }
  for (std::size_t i = 0; i < columns.labels.size(); ++i)
    classes_.emplace(columns.labels[i], static_cast<std::int64_t>(i));
}

void Encoder::fit(const Source& at, bool needs_target) {
  count_ = at.count();
  places_.clear();
  extra_.clear();
  target_.reset();
  if (!at.names().empty() && !columns_.names.empty())
    fit_names(at.names(), at, needs_target);
  else
    fit_places(at, needs_target);
}

std::vector<std::size_t> Encoder::places() const {
  std::vector<std::size_t> found = places_;
  if (target_) found.push_back(*target_);
  return found;
}

void Encoder::fit_names(const std::vector<std::string>& names, const Source& at, bool needs_target) {
  std::vector<std::string> missing;
  const auto find = [&](const std::string& name) {
    return static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin());
  };
  for (const Column& column : columns_.features) {
    places_.push_back(find(column.name));
    if (places_.back() == names.size()) missing.push_back(column.name);
    if (places_.back() < names.size() &&
        std::find(names.begin() + static_cast<std::ptrdiff_t>(places_.back()) + 1, names.end(),
                  column.name) != names.end())
      at.fail("two columns are called \"" + column.name + "\": rename one");
  }
  const std::size_t target = find(columns_.names[columns_.target]);
  if (target < names.size()) target_ = target;
  if (!target_ && needs_target) missing.push_back(columns_.names[columns_.target]);
  for (const std::string& name : names)
    if (std::find(columns_.names.begin(), columns_.names.end(), name) == columns_.names.end())
      extra_.push_back(name);
  if (!missing.empty())
    at.fail(
        (missing.size() == 1 ? "it lacks the column " : "it lacks the columns ") + listed(missing) +
        ", which the run was trained with" +
        (extra_.empty() ? std::string() : "; it has " + listed(extra_) + ", which the run does not know"));
}

void Encoder::fit_places(const Source& at, bool needs_target) {
  const bool without_target = !needs_target && count_ + 1 == columns_.count;
  if (count_ != columns_.count && !without_target)
    at.fail("found " + std::to_string(count_) + " columns, expected " + std::to_string(columns_.count) +
            " as the run was trained with" + (needs_target ? "" : ", or one less: without the target"));
  for (const Column& column : columns_.features)
    places_.push_back(without_target && column.place > columns_.target ? column.place - 1 : column.place);
  if (!without_target) target_ = columns_.target;
}

void Encoder::fail(const Source& at, std::size_t place, const std::string& name,
                   const std::string& message) const {
  at.fail("column " + std::to_string(place + 1) + (name.empty() ? "" : " \"" + name + "\"") + ": " + message);
}

void Encoder::fail_target(const Source& at, const std::string& message) const {
  fail(at, *target_, columns_.names.empty() ? "" : columns_.names[columns_.target], message);
}

void Encoder::features(const std::vector<Cell>& row, const Source& at, std::vector<float>& out) {
  for (std::size_t f = 0; f < places_.size(); ++f) {
    const Cell& cell = row[places_[f]];
    if (columns_.features[f].categorical)
      level_of(f, cell, at, out);
    else
      number_of(f, cell, at, out);
    if (columns_.features[f].indicator) out.push_back(gaps_(cell) ? 1.0f : 0.0f);
  }
}

void Encoder::number_of(std::size_t feature, const Cell& cell, const Source& at,
                        std::vector<float>& out) const {
  const Column& column = columns_.features[feature];
  std::optional<double> value = column.fill;
  if (!gaps_(cell)) {
    value = cell.number();
    if (!value)
      fail(at, places_[feature], column.name,
           shown(cell.text()) + " is not a number, as the column's values are");
    if (!std::isfinite(*value))
      fail(at, places_[feature], column.name, shown(cell.text()) + " is not a finite number");
  }
  if (!value)
    fail(at, places_[feature], column.name,
         (cell.text().empty() ? "the field is empty" : shown(cell.text()) + " stands for a gap") +
             ", and the training split has no gap in this column: say what takes its place with missing = "
             "\"median\", \"mean\", \"mode\" or \"constant\"");
  const Normal& normal = normals_[feature];
  out.push_back(static_cast<float>((*value / options_.scale - normal.mean) / normal.deviation));
  if (!std::isfinite(out.back()))
    fail(at, places_[feature], column.name, shown(cell.text()) + " is too large for a float");
}

void Encoder::level_of(std::size_t feature, const Cell& cell, const Source& at, std::vector<float>& out) {
  const Column& column = columns_.features[feature];
  const std::string& text = cell.text();
  const bool gap = gaps_(cell);
  if (gap && !column.fill_level)
    fail(at, places_[feature], column.name,
         (text.empty() ? "the field is empty" : shown(text) + " stands for a gap") +
             ": say what takes its place with missing = \"mode\" or \"constant\", or with na_values which "
             "texts are "
             "gaps");
  const auto level = levels_[feature].find(gap ? *column.fill_level : text);
  const std::size_t begin = out.size();
  out.resize(begin + column.levels.size(), 0.0f);
  if (level != levels_[feature].end())
    out[begin + level->second] = 1.0f;
  else if (unseen_[feature].size() < 1000 || unseen_[feature].contains(text))
    ++unseen_[feature][text];
  else
    ++unseen_[feature]["others"];
}

std::optional<std::int64_t> Encoder::class_of(const std::vector<Cell>& row, const Source& at,
                                              bool strict) const {
  const Cell& cell = row[*target_];
  const std::string& text = cell.text();
  if (!columns_.labels.empty()) {
    const auto given = classes_.find(text),
               found = given != classes_.end() ? given : classes_.find(class_text(text));
    if (found != classes_.end()) return found->second;
    if (gaps_(cell))
      fail_target(at, (text.empty() ? "the field is empty" : shown(text) + " stands for a gap") +
                          ": every row needs a class; take the row out");
    if (options_.labels.empty() && !strict) return std::nullopt;
    fail_target(
        at, shown(text) + (options_.labels.empty()
                               ? " is none of the " + std::to_string(columns_.labels.size()) +
                                     " classes of the training split: " + listed(columns_.labels) +
                                     "; name all classes in labels where some are that rare"
                               : " is none of the " + std::to_string(columns_.labels.size()) + " labels"));
  }
  const std::optional<double> value = cell.number();
  if (!value || *value != std::floor(*value))
    fail_target(at,
                shown(text) +
                    " is not a class: expected an integer from 0; name other texts in labels, or set task = "
                    "\"regression\"");
  if (*value < 0 || *value >= static_cast<double>(options_.classes))
    fail_target(at, "label " + shown(text) + " is out of range: expected 0 to " +
                        std::to_string(options_.classes - 1));
  return static_cast<std::int64_t>(*value);
}

float Encoder::value_of(const std::vector<Cell>& row, const Source& at) const {
  const std::string& text = row[*target_].text();
  const std::optional<double> value = row[*target_].number();
  if (!value)
    fail_target(at, shown(text) + " is not a number, which task = \"regression\" needs" +
                        (text.empty() ? ": take the row out"
                                      : "; set task = \"classification\" where it is a class"));
  const auto number = static_cast<float>(*value);
  if (!std::isfinite(number)) fail_target(at, shown(text) + " is not a finite number");
  return number;
}

std::vector<std::string> Encoder::unseen() const {
  std::vector<std::string> lines;
  for (std::size_t f = 0; f < unseen_.size(); ++f) {
    if (unseen_[f].empty()) continue;
    std::vector<std::string> names;
    std::int64_t rows = 0;
    for (const auto& [text, count] : unseen_[f]) {
      names.push_back(text);
      rows += count;
    }
    lines.push_back(columns_.features[f].text() + ": " + std::to_string(rows) +
                    (rows == 1 ? " row has a level" : " rows have levels") +
                    " that the training split does not have, which count as none: " + listed(names));
  }
  return lines;
}

}  // namespace csv
