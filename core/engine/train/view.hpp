// The samples of a dataset that belong to a split: `take` of the run file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/runfile/take.hpp"

namespace trainyard::train {

/// Numbers the samples from 0 in the order of the dataset. Folds are the same in every run: from each `folds`
/// consecutive samples one is drawn for each fold, so that folds have equal size, and each contains all parts
/// of sorted files (by class, by time).
class View {
 public:
  /// The dataset has `size` samples. Throws ConfigError if no sample is left, or fewer exist than `take` asks
  /// for; `key` is the name of `take` in messages.
  View(const std::string& key, const config::Take& take, std::int64_t size);

  /// Leaves out some of the dataset's samples, in ascending order. Throws DataError if none is left.
  void leave_out(const std::string& split, const std::vector<std::int64_t>& samples);

  std::int64_t size() const { return size_; }
  /// Returns the dataset's number of a sample in [0, size()).
  std::int64_t operator[](std::int64_t sample) const;
  /// Returns the dataset's numbers of all samples.
  std::vector<std::int64_t> samples() const;
  /// Returns, of one value per sample of the dataset, the view's; empty if `all` is empty.
  std::vector<std::int64_t> of(const std::vector<std::int64_t>& all) const;

 private:
  std::int64_t size_ = 0;
  std::int64_t first_ = 0;          ///< the first sample, if they are one range
  std::vector<std::int64_t> left_;  ///< the samples' numbers, if they are not
};

}  // namespace trainyard::train
