// Tables of numbers in text files: CSV and its kin.
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "files.hpp"
#include "parsed.hpp"
#include "rows.hpp"

namespace {

using datasets::shown;
using datasets::files::Reader;
using trainyard::ConfigError;

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

/// A finite or other number; nothing where the text is none.
std::optional<double> number(std::string_view text) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end != text.data() + text.size() || error == std::errc::invalid_argument) return std::nullopt;
  return error == std::errc{} ? value : std::numeric_limits<double>::infinity();
}

/// The fields of one line (RFC 4180, but a field ends with its line). Blanks around a field do not count.
/// False where a quote is not closed.
bool split_line(std::string_view line, char separator, std::vector<std::string>& fields) {
  std::size_t count = 0;
  const auto add = [&](std::string_view text) {
    if (count == fields.size()) fields.emplace_back();
    fields[count++].assign(text);
  };
  for (std::size_t at = 0;; ++at) {
    std::size_t end = std::min(line.find(separator, at), line.size());
    const std::string_view plain = trimmed(line.substr(at, end - at));
    if (plain.empty() || plain.front() != '"') {
      add(plain);
    } else {
      add({});
      std::size_t from = line.find('"', at) + 1;
      for (;;) {
        const std::size_t quote = line.find('"', from);
        if (quote == std::string_view::npos) return false;
        fields[count - 1].append(line.substr(from, quote - from));
        from = quote + 1;
        if (from == line.size() || line[from] != '"') break;
        fields[count - 1] += '"';
        ++from;
      }
      end = std::min(line.find(separator, from), line.size());
      if (!trimmed(line.substr(from, end - from)).empty()) return false;
    }
    if (end == line.size()) break;
    at = end;
  }
  fields.resize(count);
  return true;
}

/// v / scale, less mean, over deviation.
struct Normal {
  double mean = 0.0, deviation = 1.0;
};

class Csv final : public datasets::RowDataset {
 public:
  struct Options {
    std::string path;
    std::string target = "-1";
    std::string task = "classification";
    std::int64_t classes = 0;
    std::vector<std::string> labels;
    std::vector<std::string> columns;
    std::vector<std::int64_t> shape;
    std::string header = "auto";
    std::int64_t skip_rows = 0;
    std::string separator = ",";
    double scale = 1.0;
    std::vector<double> mean, std;
    std::string standardize_with;
    std::vector<double> fraction = {0.0, 1.0};
    std::int64_t split_seed = 0;
  };
  static void describe(trainyard::Manifest<Options>& m);
  explicit Csv(const Options& options) : options_(options) {}

  void open(const std::string&) override;

 private:
  /// The columns that count, found in the first line of a file.
  struct Columns {
    std::vector<std::size_t> features;
    std::size_t target = 0;
    std::size_t count = 0;           ///< of the file
    std::vector<std::string> names;  ///< empty without a header
  };

  bool is_header(const std::vector<std::string>& fields, const Reader& file, std::int64_t line) const;
  Columns find_columns(const std::vector<std::string>& fields, bool header, const Reader& file) const;
  std::vector<Normal> normals_of_options(std::size_t features) const;
  /// The mean and deviation of every feature over a whole file, after `scale`.
  std::vector<Normal> normals_of_file(const std::string& path) const;
  std::int64_t class_of(const std::string& text, const std::function<void(const std::string&)>& fail) const;

  /// Calls row(fields, columns, fail) for each row, where fail(column, message) throws DataError with the
  /// place.
  template <class Row>
  void each_row(const std::string& path, Row&& row) const;
  template <class Fail>
  double feature(const std::string& text, std::size_t column, Fail&& fail) const;

  Options options_;
};

void Csv::describe(trainyard::Manifest<Options>& m) {
  m.name("csv").version("1.0.0").summary(
      "Numbers in rows of text, with a class or a value to predict; plain or .gz.");
  m.option("path", &Options::path, "file; blank lines do not count").required().file();
  m.option("target", &Options::target,
           "column to predict: its name in the header, or its index from 0, or from the end: -1 is the last");
  m.option("task", &Options::task, "classification: integers from 0; regression: one number a row")
      .one_of({"classification", "regression"});
  m.option("classes", &Options::classes, "labels run from 0 to classes - 1; 0: up to the highest in the file")
      .range(0, 1 << 24);
  m.option("labels", &Options::labels,
           "texts that stand for class 0, 1, ... in the file, where it does not hold integers from 0");
  m.option("columns", &Options::columns, "features, by name or index; empty: all but the target");
  m.option("shape", &Options::shape, "of a sample, as in [1, 8, 8]; empty: [features]").range(1, 1 << 24);
  m.option("header", &Options::header,
           "whether the first line has names; auto: yes where none of it is a number")
      .one_of({"auto", "yes", "no"});
  m.option("skip_rows", &Options::skip_rows, "lines to leave out at the beginning of the file").min(0);
  m.option("separator", &Options::separator, "one character between fields");
  m.option("scale", &Options::scale, "features are divided by it").above(0.0);
  m.option("mean", &Options::mean, "subtracted after that: one number, or one a feature; empty: 0");
  m.option("std", &Options::std, "divided by at last: one number, or one a feature; empty: 1").above(0.0);
  m.option("standardize_with", &Options::standardize_with,
           "file whose means and standard deviations are taken for mean and std: that of the training split")
      .file();
  m.option("fraction", &Options::fraction,
           "[from, to]: takes the rows whose draw from [0, 1) lies there, so that splits can share one file")
      .range(0.0, 1.0);
  m.option("split_seed", &Options::split_seed, "of these draws").min(0);
}

void Csv::open(const std::string&) {
  const datasets::files::Fraction fraction(options_.fraction);
  const bool classification = options_.task == "classification";
  if (options_.separator.size() != 1)
    throw ConfigError("separator must be one character, as in \",\" or \"\\t\"");
  if (!options_.standardize_with.empty() && (!options_.mean.empty() || !options_.std.empty()))
    throw ConfigError("give either standardize_with or mean and std");
  if (!options_.labels.empty() && !classification)
    throw ConfigError("labels are for task = \"classification\"; this task is \"" + options_.task + "\"");
  if (!options_.labels.empty() && options_.classes > 0)
    throw ConfigError("give either labels or classes: the number of labels is the number of classes");

  const trainyard::RandomStream draws(static_cast<std::uint64_t>(options_.split_seed), "csv/fraction");
  std::vector<Normal> normals;
  std::uint64_t row_number = 0;
  each_row(options_.path, [&](const auto& fields, const Columns& columns, const auto& fail) {
    if (normals.empty()) {
      normals = options_.standardize_with.empty() ? normals_of_options(columns.features.size())
                                                  : normals_of_file(options_.standardize_with);
      if (normals.size() != columns.features.size())
        throw ConfigError(options_.standardize_with + " has " + std::to_string(normals.size()) +
                          " features, " + options_.path + " has " + std::to_string(columns.features.size()));
    }
    const double draw = draws.uniform(row_number++);
    if (draw < fraction.from || draw >= fraction.to) return;
    for (std::size_t f = 0; f < normals.size(); ++f) {
      const std::size_t column = columns.features[f];
      const double value = feature(fields[column], column, fail);
      features_.push_back(static_cast<float>((value - normals[f].mean) / normals[f].deviation));
      if (!std::isfinite(features_.back())) fail(column, shown(fields[column]) + " is too large for a float");
    }
    const std::string& target = fields[columns.target];
    const auto fail_target = [&](const std::string& message) { fail(columns.target, message); };
    if (classification) {
      class_of_.push_back(class_of(target, fail_target));
      return;
    }
    const std::optional<double> value = number(target);
    if (!value) fail_target(shown(target) + " is not a number");
    value_of_.push_back(static_cast<float>(*value));
    if (!std::isfinite(value_of_.back())) fail_target(shown(target) + " is not a finite number");
  });
  if (row_number == 0) throw trainyard::DataError(options_.path + ": there is no row of data");
  if (features_.empty())
    throw trainyard::DataError(options_.path + ": none of its " + std::to_string(row_number) +
                               " rows falls into fraction: widen it");

  width_ = static_cast<std::int64_t>(normals.size());
  shape_ = options_.shape.empty() ? std::vector<std::int64_t>{width_} : options_.shape;
  if (product(shape_) != width_)
    throw ConfigError("shape holds " + std::to_string(product(shape_)) + " numbers, a row of " +
                      options_.path + " has " + std::to_string(width_) + " features");
  if (!classification) return;
  classes_ = options_.labels.empty() ? options_.classes : static_cast<std::int64_t>(options_.labels.size());
  if (classes_ == 0) classes_ = 1 + *std::max_element(class_of_.begin(), class_of_.end());
}

template <class Row>
void Csv::each_row(const std::string& path, Row&& row) const {
  Reader file(path);
  std::string line;
  std::vector<std::string> fields;
  std::optional<Columns> columns;
  for (std::int64_t number = 1; file.line(line); ++number) {
    if (number == 1 && line.starts_with("\xef\xbb\xbf")) line.erase(0, 3);  // byte order mark
    if (number <= options_.skip_rows || trimmed(line).empty()) continue;
    const auto fail_line = [&](const std::string& message) {
      file.check_rest();
      throw trainyard::DataError(path + ":" + std::to_string(number) + ": " + message);
    };
    if (!split_line(line, options_.separator[0], fields)) fail_line("a quote is not closed on its line");
    if (!columns) {
      const bool header = is_header(fields, file, number);
      columns = find_columns(fields, header, file);
      if (header) continue;
    }
    if (fields.size() != columns->count)
      fail_line("found " + std::to_string(fields.size()) + " fields, expected " +
                std::to_string(columns->count) + " as in the first line");
    row(std::as_const(fields), *columns, [&](std::size_t column, const std::string& message) {
      fail_line("column " + std::to_string(column + 1) +
                (columns->names.empty() ? "" : " \"" + columns->names[column] + "\"") + ": " + message);
    });
  }
}

template <class Fail>
double Csv::feature(const std::string& text, std::size_t column, Fail&& fail) const {
  const std::optional<double> value = number(text);
  if (!value)
    fail(column, text.empty() ? "the field is empty; every feature needs a number"
                              : shown(text) + " is not a number");
  if (!std::isfinite(*value)) fail(column, shown(text) + " is not a finite number");
  return *value / options_.scale;
}

bool Csv::is_header(const std::vector<std::string>& fields, const Reader& file, std::int64_t line) const {
  if (options_.header != "auto") return options_.header == "yes";
  const auto numbers =
      std::count_if(fields.begin(), fields.end(), [](const auto& f) { return number(f).has_value(); });
  if (numbers > 0 && numbers < static_cast<std::ptrdiff_t>(fields.size()))
    file.fail("line " + std::to_string(line) +
              " has both numbers and texts: say header = \"yes\" or header = \"no\"");
  return numbers == 0;
}

Csv::Columns Csv::find_columns(const std::vector<std::string>& fields, bool header,
                               const Reader& file) const {
  Columns columns;
  columns.count = fields.size();
  if (header) columns.names = fields;
  const auto find = [&](const std::string& text, const char* option) {
    const auto name = std::find(columns.names.begin(), columns.names.end(), text);
    if (name != columns.names.end()) return static_cast<std::size_t>(name - columns.names.begin());
    std::int64_t index = 0;
    const auto count = static_cast<std::int64_t>(columns.count);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), index);
    const bool whole = error == std::errc{} && end == text.data() + text.size();
    if (!whole || index < -count || index >= count)
      throw ConfigError(std::string(option) + ": no column " + shown(text) + " in " + file.path() +
                        ", which has " + std::to_string(count) + " columns" +
                        (header
                             ? ", from \"" + columns.names.front() + "\" to \"" + columns.names.back() + "\""
                             : " and no header"));
    return static_cast<std::size_t>(index < 0 ? index + count : index);
  };
  columns.target = find(options_.target, "target");
  for (const std::string& text : options_.columns) columns.features.push_back(find(text, "columns"));
  if (options_.columns.empty())
    for (std::size_t column = 0; column < columns.count; ++column)
      if (column != columns.target) columns.features.push_back(column);
  if (columns.features.empty())
    file.fail("it has one column: the target, and no feature; is the separator right?");
  if (std::find(columns.features.begin(), columns.features.end(), columns.target) != columns.features.end())
    throw ConfigError("columns names the target " + shown(options_.target) + " as a feature");
  return columns;
}

std::vector<Normal> Csv::normals_of_options(std::size_t features) const {
  const auto value = [&](const std::vector<double>& list, std::size_t feature, double otherwise,
                         const char* name) {
    if (list.empty()) return otherwise;
    if (list.size() != 1 && list.size() != features)
      throw ConfigError(std::string(name) + " has " + std::to_string(list.size()) + " numbers, " +
                        options_.path + " has " + std::to_string(features) +
                        " features: give one number or one a feature");
    return list.size() == 1 ? list[0] : list[feature];
  };
  std::vector<Normal> normals;
  for (std::size_t f = 0; f < features; ++f)
    normals.push_back({value(options_.mean, f, 0.0, "mean"), value(options_.std, f, 1.0, "std")});
  return normals;
}

std::vector<Normal> Csv::normals_of_file(const std::string& path) const {
  // Welford, "Note on a method for calculating corrected sums of squares and products", Technometrics 4(3),
  // 1962.
  std::vector<Normal> normals;
  double rows = 0.0;
  each_row(path, [&](const auto& fields, const Columns& columns, const auto& fail) {
    normals.resize(columns.features.size(), {0.0, 0.0});
    ++rows;
    for (std::size_t f = 0; f < normals.size(); ++f) {
      const double value = feature(fields[columns.features[f]], columns.features[f], fail);
      const double distance = value - normals[f].mean;
      normals[f].mean += distance / rows;
      normals[f].deviation += distance * (value - normals[f].mean);
    }
  });
  if (rows == 0.0) throw trainyard::DataError(path + ": there is no row of data");
  for (Normal& normal : normals) {
    normal.deviation = std::sqrt(normal.deviation / rows);
    if (normal.deviation == 0.0) normal.deviation = 1.0;  // a constant column becomes 0
  }
  return normals;
}

std::int64_t Csv::class_of(const std::string& text,
                           const std::function<void(const std::string&)>& fail) const {
  if (!options_.labels.empty()) {
    const auto found = std::find(options_.labels.begin(), options_.labels.end(), text);
    if (found == options_.labels.end())
      fail(shown(text) + " is none of the " + std::to_string(options_.labels.size()) + " labels");
    return found - options_.labels.begin();
  }
  constexpr double most = 1 << 24;
  const std::optional<double> value = number(text);
  if (!value || *value != std::floor(*value))
    fail(shown(text) +
         " is not a class: expected an integer from 0; name other texts in labels, or set task = "
         "\"regression\"");
  const double classes = options_.classes > 0 ? static_cast<double>(options_.classes) : most;
  if (*value < 0 || *value >= classes)
    fail("label " + shown(text) + " is out of range: expected 0 to " +
         std::to_string(static_cast<std::int64_t>(classes) - 1));
  return static_cast<std::int64_t>(*value);
}

}  // namespace

TRAINYARD_PLUGIN(Csv)
