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
  bool keeps_best() const override { return writer_->common.keep_best.has_value(); }
  void save() override;
  std::optional<Saved> take_committed() override;
  void drain() override;

  /// Throws Error for options of a checkpointer that `run` cannot count, and for checkpoints of which none but
  /// the last could be the best.
  static void check(ActivePlugin& plugin, const Run& run);
  // As in LoopHost; plugins of other kinds are ignored.
  void open(ActivePlugin& plugin);
  void exchanged();

 private:
  template <class Call>
  void call(Call&& call);

  Run& run_;
  LoopHost& host_;
  const bool writes_;
  ActivePlugin* plugin_;
  Checkpointer* writer_ = nullptr;  ///< whose options the store has
  checkpoint::Store store_;
  std::int64_t every_ = 0;
  std::vector<std::string> waiting_;
};

}  // namespace trainyard::train
