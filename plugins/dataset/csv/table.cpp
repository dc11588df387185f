#include "table.hpp"

#include <algorithm>
#include <filesystem>

#include "../files.hpp"
#include "../parsed.hpp"
#include "encoder.hpp"
#include "learning.hpp"
#include "lib/printed.hpp"

namespace csv {

using trainyard::ConfigError;
using trainyard::DataError;

namespace {

/// Rows that a user has, as features.
class NewRows final : public trainyard::NewData {
 public:
  NewRows(std::unique_ptr<Source> source, const Columns& columns, const Options& options,
          std::vector<std::int64_t> shape, trainyard::Host& host)
      : source_(std::move(source)), encoder_(columns, options), shape_(std::move(shape)), host_(host) {
    if (source_->count() == 0) throw DataError(source_->path() + ": there is no row of data");
    encoder_.fit(*source_, false);
  }

  void carry(const std::string& column) override {
    const std::vector<std::string>& names = source_->names();
    const auto name = std::find(names.begin(), names.end(), column);
    const std::optional<std::size_t> place =
        name != names.end() ? std::optional(static_cast<std::size_t>(name - names.begin()))
                            : datasets::parsed<std::size_t>(column);
    if (!place || *place >= source_->count())
      throw DataError(source_->path() + ": there is no column \"" + column + "\" that could go along" +
                      (names.empty() ? ": it has no names; say its number, from 0 to " +
                                           std::to_string(source_->count() - 1)
                                     : ": its header has " + quoted(names)));
    carried_ = place;
  }
  std::string carried(std::int64_t sample) const override {
    return carried_ ? texts_[static_cast<std::size_t>(sample)] : std::string();
  }

  trainyard::Batch next(std::int64_t most) override {
    if (!std::exchange(begun_, true)) begin();
    trainyard::Batch batch;
    std::vector<float> features;
    lines_.clear();
    texts_.clear();
    for (; ready_ && std::ssize(lines_) < most; ready_ = source_->next(cells_)) {
      encoder_.features(cells_, *source_, features);
      lines_.push_back(++row_);
      if (carried_) texts_.push_back(cells_[*carried_].text());
      batch.indices.push_back(row_ - 1);
    }
    if (!ready_)
      for (const std::string& line : encoder_.unseen())
        host_.log(trainyard::LogLevel::warning, source_->path() + ": " + line);
    std::vector<std::int64_t> shape = {std::ssize(lines_)};
    shape.insert(shape.end(), shape_.begin(), shape_.end());
    batch.inputs.push_back(at::empty(shape, at::kFloat));
    std::copy(features.begin(), features.end(), batch.inputs[0].mutable_data_ptr<float>());
    return batch;
  }
  std::string name(std::int64_t sample) const override {
    return std::to_string(lines_[static_cast<std::size_t>(sample)]);
  }
  std::pair<std::int64_t, std::int64_t> progress() const override { return source_->progress(); }

 private:
  static std::string quoted(const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "\"" : ", \"") + name + "\"";
    return text;
  }
  /// What goes along is known now.
  void begin() {
    std::vector<std::size_t> wanted = encoder_.places();
    std::vector<std::string> extra = encoder_.extra();
    if (carried_) {
      wanted.push_back(*carried_);
      if (!source_->names().empty()) std::erase(extra, source_->names()[*carried_]);
    }
    if (!extra.empty())
      host_.log(trainyard::LogLevel::warning,
                source_->path() + ": columns that the run does not know are left out: " + quoted(extra));
    source_->want(wanted);
    ready_ = source_->next(cells_);
  }

  std::unique_ptr<Source> source_;
  Encoder encoder_;
  std::vector<std::int64_t> shape_;
  trainyard::Host& host_;
  std::vector<Cell> cells_;             ///< of the next row
  bool begun_ = false, ready_ = false;  ///< there is a next row
  std::vector<std::int64_t> lines_;     ///< rows of the last batch, from 1
  std::optional<std::size_t> carried_;  ///< the column that goes along
  std::vector<std::string> texts_;      ///< its, of the last batch
  std::int64_t row_ = 0;
};

}  // namespace

std::unique_ptr<trainyard::NewData> TableDataset::read_new(const std::string& path) const {
  return std::make_unique<NewRows>(open_source(path, &*columns_, true), *columns_, options_, shape_, host());
}

void TableDataset::check_options() const {
  const bool standardizes = options_.standardize || !options_.standardize_with.empty();
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

template <class Use>
std::uint64_t TableDataset::each_row(Source& source, bool whole, Use&& use) const {
  const datasets::files::Fraction fraction(options_.fraction);
  const trainyard::RandomStream draws(static_cast<std::uint64_t>(options_.split_seed), "csv/fraction");
  std::vector<Cell> row;
  std::uint64_t count = 0;
  while (source.next(row)) {
    const double draw = draws.uniform(count++);
    if (whole || (draw >= fraction.from && draw < fraction.to)) use(std::as_const(row));
  }
  if (count == 0) throw DataError(source.path() + ": there is no row of data");
  return count;
}

/// Those that fall into `fraction`.
std::int64_t TableDataset::rows_of_split() const {
  const std::unique_ptr<Source> source = open_source(options_.path, columns_ ? &*columns_ : nullptr, false);
  source->want({});
  std::int64_t count = 0;
  each_row(*source, false, [&](const std::vector<Cell>&) { ++count; });
  return count;
}

/// From the rows that the training split takes, or the file that stands in for it.
Columns TableDataset::learn() const {
  const bool whole = !options_.standardize_with.empty();
  const std::string& path = whole ? options_.standardize_with : options_.path;
  if (whole) warn_of_held_out();
  const std::unique_ptr<Source> source = open_source(path, nullptr, false);
  if (source->count() == 0) throw DataError(path + ": there is no row of data");
  const Columns chosen = choose(*source, options_);
  source->want(places(chosen));
  Learning learning(chosen, options_, path);
  std::size_t row = 0;
  bool any = false;
  const std::uint64_t rows = each_row(*source, whole, [&](const std::vector<Cell>& cells) {
    if (whole || takes(row++)) learning.add(cells, source->line());
    any = true;
  });
  if (!any)
    throw DataError(path + ": none of its " + std::to_string(rows) + " rows falls into fraction: widen it");
  return learning.finish([&](const std::string& what) { host().log(trainyard::LogLevel::warning, what); });
}

/// All rows of standardize_with teach, those that the training split leaves out among them.
void TableDataset::warn_of_held_out() const {
  const bool all = taken_.empty() && options_.fraction == Options().fraction;
  std::error_code ignored;
  if (!all && std::filesystem::equivalent(options_.path, options_.standardize_with, ignored))
    host().log(
        trainyard::LogLevel::warning,
        "standardize_with names " + options_.path +
            ", the file that the training split takes a part of: rows that it leaves out are learned from, "
            "too; leave standardize_with out and set standardize = true, to learn from the part alone");
}

void TableDataset::open(const std::string& split) {
  check_format();
  check_options();
  if (choose_) taken_ = datasets::mask_of(choose_, rows_of_split());
  const bool knows = columns_.has_value();
  if (!knows) columns_ = learn();
  width_ = columns_->width();
  set_shape();
  read(split);
  if (!knows && options_.standardize_target)
    host().log(
        trainyard::LogLevel::info,
        options_.path + ": " + columns_->target_text() + " has mean " +
            trainyard::lib::shortest(static_cast<float>(columns_->target_mean)) + " and deviation " +
            trainyard::lib::shortest(static_cast<float>(columns_->target_deviation)) +
            " in the training split: losses are in deviations, the metrics mae and rmse as the file is");
  if (!options_.classification()) return;
  classes_ = columns_->labels.empty() ? options_.classes : static_cast<std::int64_t>(columns_->labels.size());
  if (knows ||
      (columns_->features.end() == std::find_if(columns_->features.begin(), columns_->features.end(),
                                                [](const Column& each) { return each.categorical; })))
    return;
  host().log(trainyard::LogLevel::info, options_.path + ": " + std::to_string(columns_->features.size()) +
                                            " columns make " + std::to_string(width_) + " features");
}

void TableDataset::read(const std::string& split) {
  Encoder encoder(*columns_, options_);
  const std::unique_ptr<Source> source = open_source(options_.path, &*columns_, false);
  if (source->count() == 0) throw DataError(options_.path + ": there is no row of data");
  encoder.fit(*source, true);
  source->want(encoder.places());
  std::size_t row = 0;
  const std::uint64_t rows = each_row(*source, false, [&](const std::vector<Cell>& cells) {
    if (!takes(row++)) return skip_row();
    encoder.features(cells, *source, features_);
    if (options_.classification())
      read_class(cells, *source, encoder, split);
    else
      value_of_.push_back(static_cast<float>((encoder.value_of(cells, *source) - columns_->target_mean) /
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
void TableDataset::skip_row() {
  features_.resize(features_.size() + static_cast<std::size_t>(width_));
  if (options_.classification())
    class_of_.push_back(-1);
  else
    value_of_.push_back(0.0f);
}

/// A training split must know the class of each row.
void TableDataset::read_class(const std::vector<Cell>& row, const Source& at, const Encoder& encoder,
                              const std::string& split) {
  const std::optional<std::int64_t> found = encoder.class_of(row, at, split == "train");
  const std::vector<std::int64_t>& seen = columns_->seen;
  const bool known = seen.empty() || std::binary_search(seen.begin(), seen.end(), found.value_or(-1));
  if (!found) ungraded_.push_back(std::ssize(class_of_));
  if (!(found && known))
    (found ? unseen_ : unlearned_)
        .add(encoder.class_name(row), std::string("in ") + at.unit() + " " + std::to_string(at.line()));
  class_of_.push_back(found.value_or(-1));
}

void TableDataset::set_shape() {
  shape_ = options_.shape.empty() ? std::vector<std::int64_t>{width_} : options_.shape;
  if (product(shape_) != width_)
    throw ConfigError("shape holds " + std::to_string(product(shape_)) + " numbers, a row of " +
                      options_.path + " has " + std::to_string(width_) + " features");
}

}  // namespace csv
