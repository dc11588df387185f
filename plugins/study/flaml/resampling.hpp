// How a configuration is judged: over folds, or on samples that are held out; and on how many samples it is trained.
// FLAML (learner_choice.hpp), section 4.1, with the numbers of its release 2.6. All parts are folds of the file (`take`), so
// that those of one size lie within those of the next, each has a share of all parts of a sorted file, and what is held out
// is the same whatever the size.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace studies {

/// Returns whether data of that many samples, each of so many numbers, are judged over folds, within a budget in seconds; no
/// budget is one below 0.
inline bool takes_folds(double rows, double values, double seconds) {
  constexpr double most_rows = 100'000, speed = 1e7 / 3600.0, kept = 0.9;
  return seconds < 0.0 || (rows * values / kept < speed * seconds && rows < most_rows);
}

/// The part of the samples that a trial is trained on, and that it is judged on, as `take` of their splits.
struct Parts {
  std::string train, val;

  bool operator==(const Parts&) const = default;
};

/// Returns the parts for one of several folds.
inline Parts fold_parts(int fold, int folds) {
  const std::string part = "fold " + std::to_string(fold) + " of " + std::to_string(folds);
  return {"all but " + part, part};
}

/// A tenth is held out, and training may begin with few of the others.
class Holdout {
 public:
  /// There are `rows` samples; trials begin with `least` of them, if there are more than four times as many.
  Holdout(std::int64_t rows, std::int64_t least) : rows_(rows) {
    const bool begins_small = least > 0 && 4 * least < rows;
    folds_ = 10 * (begins_small ? (rows + least - 1) / least : 1);
    first_ = begins_small ? std::max<std::int64_t>(1, std::llround(static_cast<double>(least) / fold_size()))
                          : most();
  }

  /// Returns how many folds trials begin with, and how many there are.
  std::int64_t first() const { return first_; }
  std::int64_t most() const { return folds_ - folds_ / 10; }

  /// Returns how many come after so many: four times as many, or all where that is more than a quarter of them.
  std::int64_t after(std::int64_t folds) const { return folds * 16 > most() ? most() : folds * 4; }

  /// Returns how many samples so many folds have, about.
  double rows_of(std::int64_t folds) const { return static_cast<double>(folds) * fold_size(); }

  Parts parts(std::int64_t folds) const {
    const std::int64_t held = folds_ / 10;
    return {named(held, held + folds - 1), named(0, held - 1)};
  }

 private:
  double fold_size() const { return static_cast<double>(rows_) / static_cast<double>(folds_); }
  std::string named(std::int64_t first, std::int64_t last) const {
    const std::string of = " of " + std::to_string(folds_);
    return first == last ? "fold " + std::to_string(first) + of
                         : "folds " + std::to_string(first) + " to " + std::to_string(last) + of;
  }

  std::int64_t rows_, folds_ = 10, first_ = 9;
};

}  // namespace studies
