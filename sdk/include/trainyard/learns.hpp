// What a dataset learns from its training split and the others go by: means, levels of categories, names of classes,
// a vocabulary. It is found by what it is: dynamic_cast<Learns*>(&dataset).
//
// The host keeps it in the run's folder, RUN/data.json. A run that goes on, an evaluation and a tool give the
// dataset what lies beside the weights that they use, ahead of open(), the training split included: what a network
// was trained with stays, whatever became of the files.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <trainyard/contract.hpp>
#include <trainyard/value.hpp>

TRAINYARD_CONTRACT("learns.hpp");

namespace trainyard {

/// Tells which of `size` samples a split takes, ascending. Throws ConfigError where it would take none.
using TakenSamples = std::function<std::vector<std::int64_t>(std::int64_t size)>;

class Learns {
 public:
  virtual ~Learns() = default;

  /// Ahead of open() of a split that takes a part of the dataset's samples. The dataset still has all of them, but a
  /// training split learns from those that are taken alone, and warnings of a split are about its own samples.
  virtual void set_taken(TakenSamples taken) = 0;

  /// Once, after open() of a training split that was given nothing. Numbers are finite.
  virtual Table learned() const = 0;

  /// Ahead of open(): what a training split has learned, by this version of the plugin or an older one. Throws DataError
  /// where it cannot be used.
  virtual void use(const Table& learned) = 0;

  /// After open(): the samples, ascending, that cannot be graded, as those of a class that the training split does not
  /// have. Evaluations leave them out; the dataset itself warns of them.
  virtual std::vector<std::int64_t> ungraded() const { return {}; }
};

}  // namespace trainyard
