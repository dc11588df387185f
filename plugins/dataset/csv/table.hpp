// What the datasets of tables share, whatever the format of their files: columns become features and a class or a
// number to predict by what the training split holds.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <trainyard/host.hpp>
#include <trainyard/learns.hpp>
#include <trainyard/mixins/scales_targets.hpp>
#include <trainyard/new_data.hpp>

#include "../learned_classes.hpp"
#include "../rows.hpp"
#include "columns.hpp"

namespace csv {

class Encoder;

/// All options of a table but `path`, whose help says what the file may be.
template <class Given>
void describe_table(trainyard::Manifest<Given>& m) {
  m.option("target", &Given::target,
           "column to predict: its name in the header, or its index from 0, or from the end: -1 is the last");
  m.option("task", &Given::task, "classification: texts or integers; regression: one number a row")
      .one_of({"classification", "regression"});
  m.option("classes", &Given::classes,
           "labels are integers from 0 to classes - 1; 0: those of the training split, sorted")
      .range(0, 1 << 24);
  m.option("labels", &Given::labels,
           "texts that stand for class 0, 1, ...; empty: those of the training split, sorted");
  m.option("columns", &Given::columns, "features, by name or index; empty: all but the target");
  m.option("exclude", &Given::exclude, "columns that are no features, by name or index");
  m.option(
      "categorical", &Given::categorical,
      "columns of categories, beside those that hold texts in the training split: a feature a level, 1 or 0");
  m.option("max_levels", &Given::max_levels, "of a column of categories; with more it is refused")
      .range(1, 1 << 20);
  m.option(
       "missing", &Given::missing,
       "what takes the place of a gap, found on the training split; of categories it is their mode, and with "
       "constant a level of its own; error: gaps are refused")
      .one_of({"error", "mean", "median", "mode", "constant"});
  m.option("constant", &Given::constant, "of missing = \"constant\"");
  m.option("indicator", &Given::indicator,
           "whether a column with gaps in the training split has one more feature, 1 where there was one");
  m.option("na_values", &Given::na_values, "texts that are gaps");
  m.option("shape", &Given::shape, "of a sample, as in [1, 8, 8]; empty: [features]").range(1, 1 << 24);
  m.option("scale", &Given::scale, "numbers are divided by it").above(0.0);
  m.option("mean", &Given::mean, "subtracted after that: one number, or one a number column; empty: 0");
  m.option("std", &Given::std, "divided by at last: one number, or one a number column; empty: 1").above(0.0);
  m.option("standardize", &Given::standardize,
           "whether mean and std are those of the training split; a constant column becomes 0");
  m.option("standardize_target", &Given::standardize_target,
           "of task = \"regression\", whether the target's mean and deviation in the training split become 0 "
           "and 1; losses are in deviations then, and the metrics mae and rmse and predict in numbers as the "
           "file has them");
  m.option("standardize_with", &Given::standardize_with,
           "file whose rows all columns are learned from, in the place of the training split; standardizes")
      .file();
  m.option("fraction", &Given::fraction,
           "[from, to]: takes the rows whose draw from [0, 1) lies there, so that splits can share one file")
      .range(0.0, 1.0);
  m.option("split_seed", &Given::split_seed, "of these draws").min(0);
}

class TableDataset : public datasets::RowDataset,
                     public trainyard::Learns,
                     public trainyard::ReadsNewData,
                     public trainyard::ScalesTargets {
 public:
  explicit TableDataset(const Options& options) : options_(options) {}

  void open(const std::string& split) final;
  void set_taken(trainyard::TakenSamples taken) final { choose_ = std::move(taken); }
  std::vector<std::int64_t> ungraded() const final { return ungraded_; }
  trainyard::Table learned() const final { return to_table(*columns_); }
  void use(const trainyard::Table& learned) final { columns_ = from_table(learned); }
  std::unique_ptr<trainyard::NewData> read_new(const std::string& path) const final;
  std::vector<std::string> class_names() const final { return columns_->labels; }
  std::pair<double, double> target_scale() const final {
    return {columns_->target_deviation, columns_->target_mean};
  }

 protected:
  /// Opens a file of the format. `known`: the columns of the run, where it has some; null: none yet. New data may be
  /// a stream.
  virtual std::unique_ptr<Source> open_source(const std::string& path, const Columns* known,
                                              bool is_new) const = 0;
  /// Throws ConfigError for options of the format that make no sense.
  virtual void check_format() const {}

 private:
  void check_options() const;
  Columns learn() const;
  std::int64_t rows_of_split() const;
  bool takes(std::size_t row) const { return taken_.empty() || taken_[row]; }
  void read(const std::string& split);
  void read_class(const std::vector<Cell>& row, const Source& at, const Encoder& encoder,
                  const std::string& split);
  void skip_row();
  void warn_of_held_out() const;
  void set_shape();

  /// Calls use(row) for each row of a source that the split takes; gives how many there are.
  template <class Use>
  std::uint64_t each_row(Source& source, bool whole, Use&& use) const;

  Options options_;
  std::optional<Columns> columns_;
  trainyard::TakenSamples choose_;
  std::vector<bool> taken_;  ///< for each row whether the split takes it; empty: it takes all
  std::vector<std::int64_t> ungraded_;
  datasets::UnseenClasses unlearned_, unseen_;  ///< of taken rows; without a number, and with one
};

}  // namespace csv
