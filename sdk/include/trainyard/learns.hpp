// What a dataset learns from its training split and the others go by: means, levels of categories, names of classes,
// a vocabulary. It is found by what it is: dynamic_cast<Learns*>(&dataset).
//
// The host keeps it in the run's folder, RUN/data.json. A run that goes on, an evaluation and a tool give the
// dataset what lies beside the weights that they use, ahead of open(), the training split included: what a network
// was trained with stays, whatever became of the files.
#pragma once

#include <trainyard/contract.hpp>
#include <trainyard/value.hpp>

TRAINYARD_CONTRACT("learns.hpp");

namespace trainyard {

class Learns {
 public:
  virtual ~Learns() = default;

  /// Once, after open() of a training split that was given nothing. Numbers are finite.
  virtual Table learned() const = 0;

  /// Ahead of open(): what a training split has learned, by this version of the plugin or an older one. Throws DataError
  /// where it cannot be used.
  virtual void use(const Table& learned) = 0;
};

}  // namespace trainyard
