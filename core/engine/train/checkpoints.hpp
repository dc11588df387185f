// How the loop of a run has checkpoints written: by the plugin in the slot, into the run's store.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/engine/save/store.hpp"
#include "core/engine/train/run.hpp"

namespace trainyard::train {

/// Outlives the run, whose plugin may still be writing. Loop thread, but for open().
class Checkpoints {
 public:
  /// Opens the run's checkpointer on the store in `folder`. Throws Error.
  Checkpoints(Run& run, const std::string& folder);

  CheckpointParts parts();
  /// Adds to every snapshot of the run what the run does not know itself.
  void set_completion(std::function<void(Snapshot&)> complete) { complete_ = std::move(complete); }

  // Of a swap (OutsidePlugins):
  void open(ActivePlugin& plugin);
  void settle(ActivePlugin& plugin);
  void use(ActivePlugin& plugin);

  /// Path and step of the newest that is known to be on the disk; empty: none yet.
  const std::string& last() const { return last_; }
  std::int64_t last_step() const { return last_step_; }

 private:
  template <class Call>
  void call(Call&& call);
  bool committed();

  Run& run_;
  ActivePlugin* plugin_ = nullptr;
  checkpoint::Store store_;
  std::function<void(Snapshot&)> complete_ = [](Snapshot&) {};
  std::int64_t every_ = 0;
  std::vector<std::string> waiting_;
  std::string last_;
  std::int64_t last_step_ = -1;
};

}  // namespace trainyard::train
