// A run, made from its configuration, saved and restored.
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
  /// rank) outlive the run. The run fills in the metric and the seed of `outputs`. `learned`: what the dataset
  /// goes by, in place of learning it from the training split.
  Run(config::RunConfig config, const plugins::Registry& registry, HostOutputs outputs = {},
      distributed::World* world = nullptr, std::optional<report::Learned> learned = {},
      Data data = Data::opened);
  ~Run();

  /// Opens data that was closed, ahead of all that follows.
  void open();

  /// Builds the network, as far as `model show` needs it.
  void build_model();
  /// Builds the rest: loss, metrics, optimizer, schedule, loop. `parts` comes with what the caller adds
  /// (host, saver, signal); the run fills in what is its own.
  Loop& build_loop(LoopParts parts);

  /// Everything that has to be saved in order to go on from here: tensors by handle. At a safe point.
  Snapshot snapshot() const;
  /// The same with what each rank has of its own, under owners "rank/1/...". All ranks call it together.
  Snapshot snapshot_of_ranks() const;
  /// Goes on from what was saved, within Loop::fit. A plugin that the checkpoint does not know begins anew,
  /// one that was disabled then stays so, and the state of one that is gone is left; all are told to `note`.
  /// Throws Error where a state does not fit.
  void restore(const std::vector<State>& states, const std::function<void(const std::string&)>& note);

  // Of several ranks, one of which was lost:
  /// What a step changes ahead of the weights: buffers, and the states of plugins that are called by then.
  std::vector<State> early_states() const;
  /// What is the same on all ranks; weights and the optimizer's state where they are wanted, else what goes
  /// with them.
  std::vector<State> common_states(bool weights) const;
  /// What each rank has of its own, beside rows of tables: of the compressor; nothing where it keeps nothing.
  std::vector<State> own_states() const;
  /// Of all ranks, in their order.
  void take_own_states(const std::vector<std::vector<State>>& of_ranks);
  /// In the place of what this rank has: states of the above, without weights.
  void take_over(const std::vector<State>& states);

  /// The text of the run file that the configuration came from, before swaps; by default the configuration's.
  void set_file(std::string resolved_toml) { file_ = std::move(resolved_toml); }
  /// Plugins that the run was begun without, and that no swap may bring.
  void set_quarantined(std::vector<control::Quarantined> plugins) { quarantined_ = std::move(plugins); }
  /// Throws NumericError where a parameter or a buffer is not finite; guard.nan = "off" lets it pass.
  void check_weights() const;
  /// To where the run was when it saved these states; plugins that were disabled since are left out.
  void go_back(const std::vector<State>& states);

  // What a swap needs, which replaces parts of a run between two steps (swaps.hpp):
  Live& live() { return live_; }
  /// Whoever has the run train.
  LoopHost& host() { return *parts_.host; }
  const plugins::Registry& registry() const { return registry_; }
  const std::vector<control::Quarantined>& quarantined() const { return quarantined_; }
  /// Loads and constructs the plugin of a slot. One thread at a time.
  ActivePlugin make_plugin(const config::SlotConfig& slot, const plugins::Registry& registry);
  /// Tells the recorder which rules there are, as they are with a layer.
  void attach_rules(Layer& layer);
  /// Throws Error where the network or the loss cannot take a batch of the data. Changes nothing.
  void try_parts();
  /// Tells the loop who fills its slots.
  void connect();
  /// Of a swap that is taken back: whatever the plugin makes of it, the run goes on.
  void tell(const ActivePlugin& plugin, Event event);
  /// Waits until what is copied of the run may be written again.
  void settle() override;
  void begin_evaluation() override {
    if (shards_) shards_->begin_evaluation();
  }
  void end_evaluation() override {
    if (shards_) shards_->end_evaluation();
  }
  /// Null: each rank has the whole network.
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
  /// All plugins, in config order.
  std::deque<ActivePlugin>& plugins() { return live_.layer.plugins; }
  at::Device device() const { return live_.device; }
  std::int64_t samples(const std::string& split) const;
  /// Host::batches, of all ranks alike.
  std::vector<Batch> first_batches(std::string_view split, std::int64_t count);

  /// Parameters, then buffers: what a file of weights holds; of tables in parts, own rows.
  std::vector<NamedTensor> weights() const;

  /// Weights from elsewhere in the place of these: checkpoint::load_weights(), copy_weights().
  void load_weights(const std::string& path, const std::vector<std::string>& patterns = {});

  /// SHA-256 over named parameters and buffers; over the optimizer's state. Wait for the device.
  std::string model_digest() const;
  std::string optimizer_digest() const;

  /// To the host's log. Any thread.
  void warn(const std::string& text) const { outputs_.log(LogLevel::warning, text); }
  /// Fires exception after an error; those of its hooks are logged only.
  void fail() { fire_quietly(Event::exception); }
  /// Fires shutdown, whatever came before; errors of hooks are logged only.
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
  std::atomic<bool> thread_failed_{false};  ///< of a plugin
  HostOutputs outputs_;
  std::map<std::string, plugins::LoadedPlugin> code_;  ///< by path and digest
  Live live_;
  std::unique_ptr<StrictState> sample_;    ///< null: nobody looks, or all is looked at
  std::unique_ptr<UnsavedState> unsaved_;  ///< null: nobody looks
  std::string file_;
  std::vector<control::Quarantined> quarantined_;
  std::shared_ptr<StateCopy> copying_;       ///< null: nothing is being copied
  std::unique_ptr<Shards> shards_;           ///< null: each rank has the whole network
  std::deque<ActivePlugin> member_metrics_;  ///< where the executor has several members
  LoopParts parts_;
  std::unique_ptr<Loop> loop_;
};

}  // namespace trainyard::train
