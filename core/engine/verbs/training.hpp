// One training of a run, with all that goes along: sinks, checkpoints, the control socket, swaps.
#pragma once

#include <chrono>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/engine/events/fault_report.hpp"
#include "core/engine/recovery/rank_recovery.hpp"
#include "core/engine/save/sink_thread.hpp"
#include "core/engine/swap/commander.hpp"
#include "core/engine/train/checkpoints.hpp"
#include "core/engine/train/loop_host.hpp"
#include "core/engine/train/run.hpp"
#include "core/engine/train/time_use.hpp"
#include "core/engine/verbs/beginning.hpp"
#include "core/engine/verbs/commands.hpp"
#include "core/engine/verbs/messages.hpp"
#include "core/rundir/data_file.hpp"
#include "core/rundir/quarantine.hpp"
#include "core/rundir/run_directory.hpp"

namespace trainyard::train {

class Training final : public LoopHost {
 public:
  /// All arguments outlive it. `world` is null for a single rank. Only the first rank writes checkpoints, has
  /// sinks, and takes commands.
  Training(Beginning& beginning, const plugins::Registry& registry, const TrainOptions& options,
           Messages& messages, report::FaultReport& faults, distributed::World* world);

  /// Trains, once, and fills in `result` as far as it gets. Throws what ends the training early.
  void run(report::RunResult& result);

 private:
  // Called by the loop and by the run.
  bool log_due(std::int64_t step) override { return sinks_->due(step); }
  void record(Record&& record) override {
    beginning_.directory.check_there();
    sinks_->push(std::move(record));
  }
  void journal(std::string_view who, std::string_view what, std::string_view why) override;
  void at_safe_point() override;
  bool has_orders() const override { return commander_->has_orders(); }
  std::int64_t planned_swaps() const override { return commander_->planned(); }
  bool recover(const Error& error) override;
  void begin_step() override {
    if (recovery_) recovery_->keep_state();
  }
  void update_as_others(const Error& error) override { recovery_->update_as_others(error); }
  bool closing() override;
  void pausing(std::string_view why) override { commander_->note_pause(std::string(why)); }
  void complete(Snapshot& snapshot) override;
  void open(ActivePlugin& plugin) override;
  void settle() override { checkpoints_->drain(); }
  void exchanged() override;

  HostOutputs outputs();
  void load();
  void build();
  report::Facts data_facts();
  void compare_data();
  void open_sinks();
  void plan_swaps();
  void leave_out();
  void restore();
  void survive();
  void check_schedule();
  bool restore_best();
  void train(report::RunResult& result);
  void conclude(report::RunResult& result);
  void write_line(std::string_view who, std::string_view what, std::string_view why);
  report::SinkThread::Entry sink_entry(ActivePlugin& plugin) const;
  std::vector<report::SinkThread::Entry> sink_entries();
  std::vector<report::PluginUse> plugin_uses(const TimeUse& use);

  Beginning& beginning_;
  const plugins::Registry& registry_;
  const TrainOptions& options_;
  Messages& messages_;
  report::FaultReport& faults_;
  distributed::World* const world_;
  const bool first_;     ///< this is the first rank
  const bool newcomer_;  ///< this process replaces a killed rank
  const std::vector<control::Quarantined> quarantined_;
  std::chrono::steady_clock::time_point began_;
  std::string facts_;                      ///< about the data, for processes that replace lost ranks
  std::optional<std::int64_t> best_step_;  ///< of the weights that the run ends with, if not the last

  // Members in the order of their lifetimes; each is set once it is needed.
  std::optional<Checkpoints> checkpoints_;  ///< outlives the run, whose plugin may still be writing
  std::optional<Run> run_;
  std::optional<RankRecovery> recovery_;  ///< set if the loss of a rank does not end the run
  std::optional<report::SinkThread> sinks_;
  std::optional<control::Channel> channel_;
  std::optional<control::Commander> commander_;
};

}  // namespace trainyard::train
