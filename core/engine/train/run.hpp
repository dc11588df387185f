// A run: made from its configuration, saved and restored.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <trainyard/checkpointer.hpp>
#include <trainyard/state.hpp>

#include "core/engine/train/live.hpp"
#include "core/engine/train/loop.hpp"
#include "core/engine/train/shards.hpp"
#include "core/engine/train/state_copy.hpp"
#include "core/engine/train/strict_state.hpp"
#include "core/engine/train/unsaved_state.hpp"
#include "core/plugins/registry.hpp"
#include "core/rundir/quarantine.hpp"

namespace trainyard::train {

class Run : LoopOwner {
 public:
  enum class Data : std::uint8_t { opened, closed };

  /// Loads the plugins, opens the data and reports its scale. Throws Error. `registry` and `world` (null: one
  /// rank) outlive the run. The run fills in the metric and the seed of `outputs`. The dataset uses `learned`
  /// instead of learning from the training split.
  Run(config::RunConfig config, const plugins::Registry& registry, HostOutputs outputs = {},
      distributed::World* world = nullptr, std::optional<report::Learned> learned = {},
      Data data = Data::opened);
  ~Run();

  /// Opens data that was closed; called before all that follows.
  void open();

  /// Builds the network and what `model show` needs.
  void build_model();
  /// Builds the rest: loss, metrics, optimizer, schedule, loop. `parts` holds what the caller adds (host,
  /// saver, signal); the run fills in its own parts.
  Loop& build_loop(LoopParts parts);

  /// Returns all that a resume needs, with tensors by handle. Called at a safe point.
  Snapshot snapshot() const;
  /// The same, with each rank's own states under "rank/1/...". All ranks call it together.
  Snapshot snapshot_of_ranks() const;
  /// Restores saved state, within Loop::fit. A plugin that the checkpoint does not know begins anew, one that
  /// was disabled stays so, and the state of one that is gone is ignored; `note` is told of each. Throws
  /// Error if a state does not fit.
  void restore(const std::vector<State>& states, const std::function<void(const std::string&)>& note);

  // For rank recovery:
  /// Returns what a step changes before the weights: buffers, and states of plugins that are called by then.
  std::vector<State> early_states() const;
  /// Returns what is the same on all ranks; if `weights`, including weights and the optimizer's state, else
  /// with buffers in place of these.
  std::vector<State> common_states(bool weights) const;
  /// Returns this rank's own state, except rows of tables: the compressor's; empty if it keeps nothing.
  std::vector<State> own_states() const;
  /// Restores the own states of all ranks, given in their order.
  void take_own_states(const std::vector<std::vector<State>>& of_ranks);
  /// Replaces this rank's state by states returned above; weights are not replaced, only buffers.
  void take_over(const std::vector<State>& states);

  /// Sets the text of the run file that the configuration came from, without swaps; default: from the config.
  void set_file(std::string resolved_toml) { file_ = std::move(resolved_toml); }
  /// Sets the plugins that the run was begun without, and that no swap may bring.
  void set_quarantined(std::vector<control::Quarantined> plugins) { quarantined_ = std::move(plugins); }
  /// Throws NumericError if a parameter or a buffer is not finite, unless guard.nan = "off".
  void check_weights() const;
  /// Puts the run back to when it saved these states; plugins disabled since are left out.
  void go_back(const std::vector<State>& states);

  // For swaps, which replace parts of a run between two steps (swaps.hpp):
  Live& live() { return live_; }
  /// Returns the host of the training.
  LoopHost& host() { return *parts_.host; }
  const plugins::Registry& registry() const { return registry_; }
  const std::vector<control::Quarantined>& quarantined() const { return quarantined_; }
  /// Loads and constructs the plugin of a slot. One thread at a time.
  ActivePlugin make_plugin(const config::SlotConfig& slot, const plugins::Registry& registry);
  /// Tells the recorder which rules there are in a layer.
  void attach_rules(Layer& layer);
  /// Throws Error if the network or the loss cannot take a batch of the data. Changes nothing.
  void try_batch();
  /// Points the loop to the plugins that fill its slots.
  void connect();
  /// Calls the hook while a swap is rolled back. Errors are logged and ignored.
  void tell(const ActivePlugin& plugin, Event event);
  /// Waits until a copy in progress is done, so that the run may write what it copies.
  void settle() override;
  void begin_evaluation() override {
    if (shards_) shards_->begin_evaluation();
  }
  void end_evaluation() override {
    if (shards_) shards_->end_evaluation();
  }
  /// Returns null if each rank has the whole network.
  const Shards* shards() const { return shards_.get(); }
  void set_copying(std::shared_ptr<StateCopy> copy) { copying_ = std::move(copy); }

  ActivePlugin& checkpointer() { return live_.layer.plugin("checkpoint"); }

  const config::RunConfig& config() const { return live_.config; }
  const RunScale& scale() const { return live_.scale; }
  const BatchSchema& schema() const { return live_.schema; }
  const std::optional<report::Learned>& learned() const { return live_.learned; }
  Network& network() { return live_.layer.network(); }
  Optimizer& optimizer() { return *live_.context.optimizer_; }
  Loop& loop() { return *loop_; }
  bool has_loop() const { return loop_ != nullptr; }
  const ScheduleCurve& schedule() const { return *live_.layer.made.curve; }
  const Clock& clock() const { return live_.context.clock_; }
  events::Bus& bus() { return *live_.bus; }
  /// Returns all plugins, in config order.
  std::deque<ActivePlugin>& plugins() { return live_.layer.plugins; }
  at::Device device() const { return live_.device; }
  std::int64_t samples(const std::string& split) const;
  /// Implements Host::batches; all ranks get the same.
  std::vector<Batch> first_batches(std::string_view split, std::int64_t count);

  /// Returns parameters, then buffers, as in a file of weights; of sharded tables, this rank's rows.
  std::vector<NamedTensor> weights() const;

  /// Replaces the weights by others: see checkpoint::load_weights() and copy_weights().
  void load_weights(const std::string& path, const std::vector<std::string>& patterns = {});

  /// Return SHA-256 over named parameters and buffers; over the optimizer's state. They wait for the device.
  std::string model_digest() const;
  std::string optimizer_digest() const;

  /// Writes a warning to the host's log. Any thread.
  void warn(const std::string& text) const { outputs_.log(LogLevel::warning, text); }
  /// Fires `exception` after an error; errors of its hooks are only logged.
  void fail() { fire_quietly(Event::exception); }
  /// Fires `shutdown`, whatever came before; errors of its hooks are only logged.
  void shutdown() { fire_quietly(Event::shutdown); }

 private:
  void fire_quietly(Event event);
  void check_threads() override;
  Table run_file(const std::vector<std::string>& set) const override;
  std::unique_ptr<Network> build(std::uint64_t seed) override;
  void connect_metrics();
  void set_inspectors();
  void open_data();
  static const plugins::PluginFile& find_plugin(const std::string& slot, const std::string& kind,
                                                const std::string& type, const plugins::Registry& registry);
  const plugins::LoadedPlugin& code_of(const plugins::PluginFile& file);
  void load_parts(const std::string& slot, const ManifestData& manifest, const Table& options,
                  const plugins::Registry& registry, PartCode& parts);
  template <class Interface>
  Filled<Interface> filled(std::string_view slot) {
    ActivePlugin& plugin = live_.layer.plugin(slot);
    return {&plugin.slot(), &plugin.as<Interface>()};
  }
  void leave_out(const State& run, const std::function<void(const std::string&)>& note);
  void drop_requests(const State& run);
  State buffers() const;
  State optimizer_state() const;

  const plugins::Registry& registry_;
  std::atomic<bool> thread_failed_{false};  ///< a plugin's thread threw
  HostOutputs outputs_;
  std::map<std::string, plugins::LoadedPlugin> code_;  ///< by path and digest
  Live live_;
  std::unique_ptr<StrictState> sample_;    ///< null: nothing is looked at, or everything is
  std::unique_ptr<UnsavedState> unsaved_;  ///< null: nobody looks
  std::string file_;
  std::vector<control::Quarantined> quarantined_;
  std::shared_ptr<StateCopy> copying_;       ///< null: nothing is being copied
  std::unique_ptr<Shards> shards_;           ///< null: each rank has the whole network
  std::deque<ActivePlugin> member_metrics_;  ///< set if the executor has several members
  LoopParts parts_;
  std::unique_ptr<Loop> loop_;
};

}  // namespace trainyard::train
