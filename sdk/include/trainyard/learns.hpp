// Facts that a dataset learns from its training split and the other splits use: means, levels of categories,
// names of classes, a vocabulary. The interface is found by its type: dynamic_cast<Learns*>(&dataset).
//
// The host keeps them in the run's folder, RUN/data.json. Where a run goes on, in an evaluation and in a
// tool, it gives the dataset those that lie beside the weights in use, ahead of open(), also for the training
// split: the network keeps what it was trained with, whatever became of the files.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <trainyard/contract.hpp>
#include <trainyard/value.hpp>

TRAINYARD_CONTRACT("learns.hpp");

namespace trainyard {

/// Returns which of `size` samples a split takes, ascending. Throws ConfigError where it would take none.
using TakenSamples = std::function<std::vector<std::int64_t>(std::int64_t size)>;

class Learns {
 public:
  virtual ~Learns() = default;

  /// Called before open() of a split that takes a part of the dataset's samples. The dataset still has all,
  /// but a training split learns from those taken alone, and warnings of a split are about its own samples.
  virtual void set_taken(TakenSamples taken) = 0;

  /// Called once, after open() of a training split that use() was not called for. Numbers are finite.
  virtual Table learned() const = 0;

  /// Called before open(), with what a training split has learned by this version of the plugin or an older
  /// one. Throws DataError where it cannot be used.
  virtual void use(const Table& learned) = 0;

  /// Returns, after open(), the samples that the split leaves out, ascending: those that cannot be graded, as
  /// of a class that the training split does not have; of this one, what is not to be learned from.
  virtual std::vector<std::int64_t> ungraded() const { return {}; }
};

}  // namespace trainyard
