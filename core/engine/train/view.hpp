// The samples of a dataset that a split has: `take` of the run file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <trainyard/random.hpp>

#include "core/runfile/take.hpp"

namespace trainyard::train {

/// Its samples are numbered from 0 in the order of the dataset; nothing is stored. Folds are the same in every
/// run: of each `folds` samples that follow each other, one is drawn for each fold, so that folds are of one size
/// and files that lie in order (by class, by time) are in all of them alike.
class View {
 public:
  /// Of a dataset with `size` samples. Throws ConfigError where nothing of it is left, or it has fewer samples
  /// than are asked for; `key` is the name of `take` in messages.
  View(const std::string& key, const config::Take& take, std::int64_t size);

  /// Throws DataError where nothing is left; `samples` of the dataset ascend.
  void leave_out(const std::string& split, const std::vector<std::int64_t>& samples);

  std::int64_t size() const { return size_; }
  /// The dataset's number of a sample in [0, size()).
  std::int64_t operator[](std::int64_t sample) const;
  /// All of them, by the dataset's numbers.
  std::vector<std::int64_t> samples() const;
  /// Of what there is for each sample of the dataset; nothing where there is nothing.
  std::vector<std::int64_t> of(const std::vector<std::int64_t>& all) const;

 private:
  std::int64_t place_in(std::int64_t block) const;

  config::Take take_;
  RandomStream folds_{0, "folds"};
  std::int64_t size_ = 0;
  std::int64_t first_ = 0;          ///< where the samples are one range
  std::vector<std::int64_t> left_;  ///< all of the samples, once some are left out
};

}  // namespace trainyard::train
