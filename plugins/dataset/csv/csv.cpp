// Tables in text files: CSV and its kin.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include <trainyard/host.hpp>
#include <trainyard/learns.hpp>
#include <trainyard/mixins/scales_targets.hpp>
#include <trainyard/new_data.hpp>

#include "../learned_classes.hpp"
#include "../rows.hpp"
#include "encoder.hpp"
#include "learning.hpp"

namespace {

using namespace csv;
using datasets::files::Reader;
using trainyard::ConfigError;
using trainyard::DataError;

/// Rows that a user has, as features.
class NewRows final : public trainyard::NewData {
 public:
  NewRows(const std::string& path, const Columns& columns, const Options& options,
          std::vector<std::int64_t> shape, trainyard::Host& host)
      : file_(path, Reader::Streams::taken),
        records_(file_, options.separator[0], options.skip_rows),
        columns_(columns),
        encoder_(columns, options),
        shape_(std::move(shape)),
        host_(host) {
    if (!records_.next(fields_)) throw DataError(path + ": there is no row of data");
    const bool header = is_header(fields_, options, &columns, records_);
    encoder_.fit(fields_, header, records_, false);
    if (!encoder_.extra().empty()) {
      std::string names;
      for (const std::string& name : encoder_.extra()) names += (names.empty() ? "\"" : ", \"") + name + "\"";
      host_.log(trainyard::LogLevel::warning,
                path + ": columns that the run does not know are left out: " + names);
    }
    ready_ = !header || records_.next(fields_);
  }

  trainyard::Batch next(std::int64_t most) override {
    trainyard::Batch batch;
    std::vector<float> features;
    lines_.clear();
    for (; ready_ && std::ssize(lines_) < most; ready_ = records_.next(fields_)) {
      encoder_.features(fields_, records_, features);
      lines_.push_back(++row_);
      batch.indices.push_back(row_ - 1);
    }
    if (!ready_)
      for (const std::string& line : encoder_.unseen())
        host_.log(trainyard::LogLevel::warning, file_.path() + ": " + line);
    std::vector<std::int64_t> shape = {std::ssize(lines_)};
    shape.insert(shape.end(), shape_.begin(), shape_.end());
    batch.inputs.push_back(at::empty(shape, at::kFloat));
    std::copy(features.begin(), features.end(), batch.inputs[0].mutable_data_ptr<float>());
    return batch;
  }
  std::string name(std::int64_t sample) const override {
    return std::to_string(lines_[static_cast<std::size_t>(sample)]);
  }
  std::pair<std::int64_t, std::int64_t> progress() const override { return file_.progress(); }

 private:
  Reader file_;
  Records records_;
  const Columns& columns_;
  Encoder encoder_;
  std::vector<std::int64_t> shape_;
  trainyard::Host& host_;
  std::vector<std::string> fields_;  ///< of the next record
  bool ready_ = false;               ///< there is one
  std::vector<std::int64_t> lines_;  ///< rows of the last batch, from 1
  std::int64_t row_ = 0;
};

class Csv final : public datasets::RowDataset,
                  public trainyard::Learns,
                  public trainyard::ReadsNewData,
                  public trainyard::ScalesTargets {
 public:
  using Options = csv::Options;
  static void describe(trainyard::Manifest<Options>& m);
  explicit Csv(const Options& options) : options_(options) {}

  void open(const std::string& split) override;
  void set_taken(trainyard::TakenSamples taken) override { choose_ = std::move(taken); }
  std::vector<std::int64_t> ungraded() const override { return ungraded_; }
  trainyard::Table learned() const override { return to_table(*columns_); }
  void use(const trainyard::Table& learned) override { columns_ = from_table(learned); }
  std::unique_ptr<trainyard::NewData> read_new(const std::string& path) const override {
    return std::make_unique<NewRows>(path, *columns_, options_, shape_, host());
  }
  std::vector<std::string> class_names() const override { return columns_->labels; }
  std::pair<double, double> target_scale() const override {
    return {columns_->target_deviation, columns_->target_mean};
  }

 private:
  void check_options() const;
  Columns learn() const;
  std::int64_t rows_of_split() const;
  bool takes(std::size_t row) const { return taken_.empty() || taken_[row]; }
  void read(const std::string& split);
  void read_class(const std::vector<std::string>& fields, const Records& at, const Encoder& encoder,
                  const std::string& split);
  void skip_row();
  void warn_of_held_out() const;
  void set_shape();

  /// Calls row(fields, records) for each row that the split takes; gives how many the file has.
  template <class First, class Row>
  std::uint64_t each_row(const std::string& path, bool whole, First&& first, Row&& row) const;

  Options options_;
  std::optional<Columns> columns_;
  trainyard::TakenSamples choose_;
  std::vector<bool> taken_;  ///< for each row whether the split takes it; empty: it takes all
  std::vector<std::int64_t> ungraded_;
  datasets::UnseenClasses unlearned_, unseen_;  ///< of taken rows; without a number, and with one
};

void Csv::describe(trainyard::Manifest<Options>& m) {
  m.name("csv").version("2.0.0").summary(
      "Tables in text files, of numbers and categories, with a class or a value to predict; plain or .gz.");
  m.option("path", &Options::path, "file; blank lines do not count").required().file();
  m.option("target", &Options::target,
           "column to predict: its name in the header, or its index from 0, or from the end: -1 is the last");
  m.option("task", &Options::task, "classification: texts or integers; regression: one number a row")
      .one_of({"classification", "regression"});
  m.option("classes", &Options::classes,
           "labels are integers from 0 to classes - 1; 0: those of the training split, sorted")
      .range(0, 1 << 24);
  m.option("labels", &Options::labels,
           "texts that stand for class 0, 1, ...; empty: those of the training split, sorted");
  m.option("columns", &Options::columns, "features, by name or index; empty: all but the target");
  m.option("exclude", &Options::exclude, "columns that are no features, by name or index");
  m.option(
      "categorical", &Options::categorical,
      "columns of categories, beside those that hold texts in the training split: a feature a level, 1 or 0");
  m.option("max_levels", &Options::max_levels, "of a column of categories; with more it is refused")
      .range(1, 1 << 20);
  m.option(
       "missing", &Options::missing,
       "what takes the place of a gap, found on the training split; of categories it is their mode, and with "
       "constant a level of its own; error: gaps are refused")
      .one_of({"error", "mean", "median", "mode", "constant"});
  m.option("constant", &Options::constant, "of missing = \"constant\"");
  m.option("indicator", &Options::indicator,
           "whether a column with gaps in the training split has one more feature, 1 where there was one");
  m.option("na_values", &Options::na_values, "texts that are gaps");
  m.option("shape", &Options::shape, "of a sample, as in [1, 8, 8]; empty: [features]").range(1, 1 << 24);
  m.option("header", &Options::header,
           "whether the first line has names; auto: yes where none of it is a number")
      .one_of({"auto", "yes", "no"});
  m.option("skip_rows", &Options::skip_rows, "lines to leave out at the beginning of the file").min(0);
  m.option("separator", &Options::separator, "one character between fields");
  m.option("scale", &Options::scale, "numbers are divided by it").above(0.0);
  m.option("mean", &Options::mean, "subtracted after that: one number, or one a number column; empty: 0");
  m.option("std", &Options::std, "divided by at last: one number, or one a number column; empty: 1")
      .above(0.0);
  m.option("standardize", &Options::standardize,
           "whether mean and std are those of the training split; a constant column becomes 0");
  m.option("standardize_target", &Options::standardize_target,
           "of task = \"regression\", whether the target's mean and deviation in the training split become 0 "
           "and 1; losses "
           "and metrics are in deviations then, and predict gives numbers as the file has them");
  m.option("standardize_with", &Options::standardize_with,
           "file whose rows all columns are learned from, in the place of the training split; standardizes")
      .file();
  m.option("fraction", &Options::fraction,
           "[from, to]: takes the rows whose draw from [0, 1) lies there, so that splits can share one file")
      .range(0.0, 1.0);
  m.option("split_seed", &Options::split_seed, "of these draws").min(0);
}

void Csv::check_options() const {
  const bool standardizes = options_.standardize || !options_.standardize_with.empty();
  if (options_.separator.size() != 1)
    throw ConfigError("separator must be one character, as in \",\" or \"\\t\"");
  if (standardizes && (!options_.mean.empty() || !options_.std.empty()))
    throw ConfigError("give either standardize, or standardize_with, or mean and std");
  if (!options_.labels.empty() && !options_.classification())
    throw ConfigError("labels are for task = \"classification\"; this task is \"" + options_.task + "\"");
  if (!options_.labels.empty() && options_.classes > 0)
    throw ConfigError("give either labels or classes: the number of labels is the number of classes");
  if (options_.standardize_target && options_.classification())
    throw ConfigError("standardize_target is for numbers: leave it out, or set task = \"regression\"");
  if (options_.indicator && options_.missing == "error")
    throw ConfigError("indicator = true needs missing = \"median\", \"mean\", \"mode\" or \"constant\"");
}

template <class First, class Row>
std::uint64_t Csv::each_row(const std::string& path, bool whole, First&& first, Row&& row) const {
  const datasets::files::Fraction fraction(options_.fraction);
  const trainyard::RandomStream draws(static_cast<std::uint64_t>(options_.split_seed), "csv/fraction");
  Reader file(path);
  Records records(file, options_.separator[0], options_.skip_rows);
  std::vector<std::string> fields;
  std::uint64_t count = 0;
  bool begun = false;
  while (records.next(fields)) {
    const bool is_names = !begun && first(fields, records);
    begun = true;
    if (is_names) continue;
    const double draw = draws.uniform(count++);
    if (whole || (draw >= fraction.from && draw < fraction.to)) row(std::as_const(fields), records);
  }
  if (count == 0) throw DataError(path + ": there is no row of data");
  return count;
}

/// Those that fall into `fraction`.
std::int64_t Csv::rows_of_split() const {
  std::int64_t count = 0;
  each_row(
      options_.path, false,
      [&](const std::vector<std::string>& first, const Records& at) {
        return is_header(first, options_, columns_ ? &*columns_ : nullptr, at);
      },
      [&](const std::vector<std::string>&, const Records&) { ++count; });
  return count;
}

/// From the rows that the training split takes, or the file that stands in for it.
Columns Csv::learn() const {
  const bool whole = !options_.standardize_with.empty();
  const std::string& path = whole ? options_.standardize_with : options_.path;
  if (whole) warn_of_held_out();
  std::size_t row = 0;
  std::optional<Learning> learning;
  bool any = false;
  const std::uint64_t rows = each_row(
      path, whole,
      [&](const std::vector<std::string>& first, const Records& at) {
        const bool header = is_header(first, options_, nullptr, at);
        learning.emplace(choose(first, header, options_, path), options_, path);
        return header;
      },
      [&](const std::vector<std::string>& fields, const Records& at) {
        if (whole || takes(row++)) learning->add(fields, at.line());
        any = true;
      });
  if (!any)
    throw DataError(path + ": none of its " + std::to_string(rows) + " rows falls into fraction: widen it");
  return learning->finish([&](const std::string& what) { host().log(trainyard::LogLevel::warning, what); });
}

/// All rows of standardize_with teach, those that the training split leaves out among them.
void Csv::warn_of_held_out() const {
  const bool all = taken_.empty() && options_.fraction == Options().fraction;
  std::error_code ignored;
  if (!all && std::filesystem::equivalent(options_.path, options_.standardize_with, ignored))
    host().log(
        trainyard::LogLevel::warning,
        "standardize_with names " + options_.path +
            ", the file that the training split takes a part of: rows that it leaves out are learned from, "
            "too; leave standardize_with out and set standardize = true, to learn from the part alone");
}

void Csv::open(const std::string& split) {
  check_options();
  if (choose_) taken_ = datasets::mask_of(choose_, rows_of_split());
  const bool knows = columns_.has_value();
  if (!knows) columns_ = learn();
  width_ = columns_->width();
  set_shape();
  read(split);
  if (!options_.classification()) return;
  classes_ = columns_->labels.empty() ? options_.classes : static_cast<std::int64_t>(columns_->labels.size());
  if (knows ||
      (columns_->features.end() == std::find_if(columns_->features.begin(), columns_->features.end(),
                                                [](const Column& each) { return each.categorical; })))
    return;
  host().log(trainyard::LogLevel::info, options_.path + ": " + std::to_string(columns_->features.size()) +
                                            " columns make " + std::to_string(width_) + " features");
}

void Csv::read(const std::string& split) {
  Encoder encoder(*columns_, options_);
  std::size_t row = 0;
  const std::uint64_t rows = each_row(
      options_.path, false,
      [&](const std::vector<std::string>& first, const Records& at) {
        const bool header = is_header(first, options_, &*columns_, at);
        encoder.fit(first, header, at, true);
        return header;
      },
      [&](const std::vector<std::string>& fields, const Records& at) {
        if (!takes(row++)) return skip_row();
        encoder.features(fields, at, features_);
        if (options_.classification())
          read_class(fields, at, encoder, split);
        else
          value_of_.push_back(static_cast<float>((encoder.value_of(fields, at) - columns_->target_mean) /
                                                 columns_->target_deviation));
      });
  if (features_.empty())
    throw DataError(options_.path + ": none of its " + std::to_string(rows) +
                    " rows falls into fraction: widen it");
  for (const std::string& line : encoder.unseen())
    host().log(trainyard::LogLevel::warning, "the split " + split + ", " + line);
  const std::string where = "the split " + split + ", " + columns_->target_text();
  unlearned_.warn(host(), where, datasets::UnseenClasses::left_out);
  unseen_.warn(host(), where, datasets::UnseenClasses::graded);
}

/// Keeps the place of a row that the split does not take: nobody reads the row, whatever it holds.
void Csv::skip_row() {
  features_.resize(features_.size() + static_cast<std::size_t>(width_));
  if (options_.classification())
    class_of_.push_back(-1);
  else
    value_of_.push_back(0.0f);
}

/// A training split must know the class of each row.
void Csv::read_class(const std::vector<std::string>& fields, const Records& at, const Encoder& encoder,
                     const std::string& split) {
  const std::optional<std::int64_t> found = encoder.class_of(fields, at, split == "train");
  const std::vector<std::int64_t>& seen = columns_->seen;
  const bool known = seen.empty() || std::binary_search(seen.begin(), seen.end(), found.value_or(-1));
  if (!found) ungraded_.push_back(std::ssize(class_of_));
  if (!(found && known))
    (found ? unseen_ : unlearned_).add(encoder.class_name(fields), "in line " + std::to_string(at.line()));
  class_of_.push_back(found.value_or(-1));
}

void Csv::set_shape() {
  shape_ = options_.shape.empty() ? std::vector<std::int64_t>{width_} : options_.shape;
  if (product(shape_) != width_)
    throw ConfigError("shape holds " + std::to_string(product(shape_)) + " numbers, a row of " +
                      options_.path + " has " + std::to_string(width_) + " features");
}

}  // namespace

TRAINYARD_PLUGIN(Csv)
