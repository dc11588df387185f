// Has the run's checkpointer plugin write checkpoints into the run's store.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/engine/save/store.hpp"
#include "core/engine/train/run.hpp"

namespace trainyard::train {

/// Outlives the run, whose plugin may still be writing. Loop thread, except for open().
class Checkpoints final : public Saver {
 public:
  /// Opens the run's checkpointer on the store in `folder`. `host` completes what is saved. `writes` is false
  /// if another rank does that. Throws Error.
  Checkpoints(Run& run, LoopHost& host, const std::string& folder, bool writes = true);

  std::int64_t every() const override { return every_; }
  void save() override;
  std::optional<Saved> take_committed() override;
  void drain() override;

  // As in LoopHost; plugins of other kinds are ignored.
  void open(ActivePlugin& plugin);
  void settle(ActivePlugin& plugin);
  void use(ActivePlugin& plugin);

 private:
  template <class Call>
  void call(Call&& call);

  Run& run_;
  LoopHost& host_;
  const bool writes_;
  ActivePlugin* plugin_;
  checkpoint::Store store_;
  std::int64_t every_;
  std::vector<std::string> waiting_;
};

}  // namespace trainyard::train
