// Records of a file as numbers, by what was learned of the training split.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "columns.hpp"
#include "records.hpp"

namespace csv {

/// Whether the first record has names. `known`: the training file's columns, where there are some.
bool is_header(const std::vector<std::string>& first, const Options& options, const Columns* known,
               const Records& at);

class Encoder {
 public:
  /// Both outlive it. Throws ConfigError where mean or std have another number of entries than there are numbers.
  Encoder(const Columns& columns, const Options& options);

  /// Finds the columns in a file, by name, or by place where one of the files has no names. Throws DataError that
  /// says which are missing, and which nobody knows; without a target only where `needs_target`.
  void fit(const std::vector<std::string>& first, bool header, const Records& at, bool needs_target);
  /// In a file that was fitted, columns that the training file does not have.
  const std::vector<std::string>& extra() const { return extra_; }

  /// Appends columns.width() numbers. Throws DataError that names line and column. A level that the training split does
  /// not have is remembered for unseen().
  void features(const std::vector<std::string>& fields, const Records& at, std::vector<float>& out);
  /// Nothing for a class that was to be learned, and that the training split does not have; with `strict` that throws.
  std::optional<std::int64_t> class_of(const std::vector<std::string>& fields, const Records& at,
                                       bool strict) const;
  /// Of the target.
  const std::string& class_name(const std::vector<std::string>& fields) const { return fields[*target_]; }
  float value_of(const std::vector<std::string>& fields, const Records& at) const;

  /// Levels that the training split does not have, a line a column.
  std::vector<std::string> unseen() const;

 private:
  struct Normal {
    double mean = 0.0, deviation = 1.0;
  };
  void number_of(std::size_t feature, const std::string& text, const Records& at,
                 std::vector<float>& out) const;
  void level_of(std::size_t feature, const std::string& text, const Records& at, std::vector<float>& out);
  [[noreturn]] void fail(const Records& at, std::size_t place, const std::string& name,
                         const std::string& message) const;
  [[noreturn]] void fail_target(const Records& at, const std::string& message) const;
  void fit_names(const std::vector<std::string>& names, const Records& at, bool needs_target);
  void fit_places(const Records& at, bool needs_target);

  const Columns& columns_;
  const Options& options_;
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
