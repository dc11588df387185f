// dataset/1: samples by index.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <trainyard/batch.hpp>
#include <trainyard/contract.hpp>
#include <trainyard/plugin.hpp>
#include <trainyard/random.hpp>

TRAINYARD_CONTRACT("dataset.hpp");

namespace trainyard {

/// The position of a batch in a run. A dataset that augments draws for its i-th sample with `position + i` as
/// the counter, so that the result depends neither on the size of batches nor on the thread.
struct ReadContext {
  RandomStream random;        ///< keyed by the run's seed and the split; its step is the epoch
  std::int64_t position = 0;  ///< position of the first sample in the order of the epoch
  std::int64_t step = 0;      ///< in the epoch, from 0: one for all batches that a step is cut into
};

/// There is one object a split ("train", "val", "test"): `[data]` holds the options that splits share,
/// `[data.SPLIT]` the rest.
class Dataset : public Plugin {
 public:
  static constexpr Kind kind{"dataset", 1};

  /// Reads or maps the files. Called once, before anything else. Throws DataError that names file and record
  /// (row, offset): missing, truncated, label out of range, a number that is not finite, no sample at all.
  virtual void open(const std::string& split) = 0;

  virtual std::int64_t size() const = 0;
  virtual BatchSchema schema() const = 0;

  /// Returns the samples of `indices`, each in [0, size()), in that order, on the CPU; the host sets
  /// `indices` and `weight` of the batch. Called from several threads at once. Throws DataError.
  virtual Batch read(std::span<const std::int64_t> indices, const ReadContext& context) const = 0;

  /// Returns the class of every sample, for samplers that balance; empty where samples have none.
  virtual std::vector<std::int64_t> labels() const { return {}; }
};

}  // namespace trainyard
