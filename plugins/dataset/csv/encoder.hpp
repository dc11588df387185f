// Rows of a table as numbers, by what was learned of the training split.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "columns.hpp"
#include "source.hpp"

namespace csv {

class Encoder {
 public:
  /// Both outlive it. Throws ConfigError where mean or std have another number of entries than there are numbers.
  Encoder(const Columns& columns, const Options& options);

  /// Finds the columns in a file, by name, or by place where one of the files has no names. Throws DataError that
  /// says which are missing, and which nobody knows; without a target only where `needs_target`.
  void fit(const Source& at, bool needs_target);
  /// Of the file that was fitted: the places of features and, where it is there, of the target.
  std::vector<std::size_t> places() const;
  /// In it, columns that the training file does not have.
  const std::vector<std::string>& extra() const { return extra_; }

  /// Appends columns.width() numbers. Throws DataError that names line and column. A level that the training split does
  /// not have is remembered for unseen().
  void features(const std::vector<Cell>& row, const Source& at, std::vector<float>& out);
  /// Nothing for a class that was to be learned, and that the training split does not have; with `strict` that throws.
  std::optional<std::int64_t> class_of(const std::vector<Cell>& row, const Source& at, bool strict) const;
  /// Of the target.
  const std::string& class_name(const std::vector<Cell>& row) const { return row[*target_].text(); }
  float value_of(const std::vector<Cell>& row, const Source& at) const;

  /// Levels that the training split does not have, a line a column.
  std::vector<std::string> unseen() const;

 private:
  struct Normal {
    double mean = 0.0, deviation = 1.0;
  };
  void number_of(std::size_t feature, const Cell& cell, const Source& at, std::vector<float>& out) const;
  void level_of(std::size_t feature, const Cell& cell, const Source& at, std::vector<float>& out);
  [[noreturn]] void fail(const Source& at, std::size_t place, const std::string& name,
                         const std::string& message) const;
  [[noreturn]] void fail_target(const Source& at, const std::string& message) const;
  void fit_names(const std::vector<std::string>& names, const Source& at, bool needs_target);
  void fit_places(const Source& at, bool needs_target);

  const Columns& columns_;
  const Options& options_;
  const Gaps gaps_;
  std::vector<Normal> normals_;                                       ///< of the features
  std::vector<std::unordered_map<std::string, std::size_t>> levels_;  ///< of the features: places among them
  std::unordered_map<std::string, std::int64_t> classes_;             ///< by label
  std::vector<std::map<std::string, std::int64_t>> unseen_;  ///< of the features: texts and how often
  std::size_t count_ = 0;                                    ///< of the file's columns
  std::vector<std::size_t> places_;                          ///< of the features in the file
  std::optional<std::size_t> target_;
  std::vector<std::string> extra_;
};

}  // namespace csv
