// A plugin whose work depends on other parts of the run: what it makes is measured in the way of the run's executor, for the batches of
// the run. It is found by its type: dynamic_cast<ReadsRunFile*>(&plugin).
#pragma once

#include <trainyard/contract.hpp>
#include <trainyard/value.hpp>

TRAINYARD_CONTRACT("mixins/reads_run_file.hpp");

namespace trainyard {

/// A transform implements it.
class ReadsRunFile {
 public:
  virtual ~ReadsRunFile() = default;

  /// Called ahead of each Transform::apply, on its thread, with the run file as `trainyard config show` prints it, defaults
  /// filled in. In a swap it is the file as it will be.
  virtual void read_run_file(const Table& run) const = 0;
};

}  // namespace trainyard
