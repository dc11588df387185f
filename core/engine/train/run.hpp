// A run: made from its configuration, saved and restored.
#pragma once

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/engine/train/live.hpp"
#include "core/engine/train/loop.hpp"
#include "core/engine/train/run_states.hpp"
#include "core/engine/train/strict_state.hpp"
#include "core/engine/train/unsaved_state.hpp"
#include "core/plugins/registry.hpp"

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
  ~Run() override;

  /// Opens data that was closed; called before all that follows.
  void open();

  /// Builds the network and what `model show` needs.
  void build_model();
  /// Builds the rest: loss, metrics, optimizer, schedule, loop. `parts` holds what the caller adds (host,
  /// saver, signal); the run fills in its own parts.
  Loop& build_loop(LoopParts parts);

  /// Returns the state of the run, to save it or to put it back.
  RunStates& states() { return states_; }
  const RunStates& states() const { return states_; }

  // For swaps, which replace parts of a run between two steps (swaps.hpp):
  Live& live() { return live_; }
  /// Returns the host of the training.
  LoopHost& host() { return *parts_.host; }
  const plugins::Registry& registry() const { return registry_; }
  /// Loads and constructs the plugin of a slot. One thread at a time.
  ActivePlugin make_plugin(const config::SlotConfig& slot, const plugins::Registry& registry);
  /// Tells the recorder which rules a configuration has; both are in a layer.
  void attach_rules(const config::RunConfig& config, Layer& layer);
  /// Throws Error if the network or the loss cannot take a batch of the data. Changes nothing.
  void try_batch();
  /// Points the loop to the plugins that fill its slots.
  void connect();
  /// Calls the hook while a swap is rolled back. Errors are logged and ignored.
  void fire_swap(const ActivePlugin& plugin, Event event);
  ActivePlugin& checkpointer() { return live_.layer.plugin("checkpoint"); }

  const config::RunConfig& config() const { return live_.config; }
  const RunScale& scale() const { return live_.scale; }
  const std::optional<report::Learned>& learned() const { return live_.learned; }
  Network& network() { return live_.layer.network(); }
  Optimizer& optimizer() { return *live_.context.optimizer_; }
  Loop& loop() { return *loop_; }
  bool has_loop() const { return loop_ != nullptr; }
  const ScheduleCurve& schedule() const { return *live_.layer.made.curve; }
  const Clock& clock() const { return live_.context.clock_; }
  events::Bus& bus() { return *live_.bus; }
  /// Returns all plugins, in config order.
  std::list<ActivePlugin>& plugins() { return live_.layer.plugins; }
  std::int64_t samples(const std::string& split) const;
  /// Implements Host::batches; all ranks get the same.
  std::vector<Batch> first_batches(std::string_view split, std::int64_t count);

  /// Writes a warning to the host's log. Any thread.
  void warn(const std::string& text) const { outputs_.log(LogLevel::warning, text); }
  /// Fires `exception` after an error; errors of its hooks are only logged.
  void fail() { fire_quietly(Event::exception); }
  /// Fires `shutdown`, whatever came before; errors of its hooks are only logged.
  void shutdown() { fire_quietly(Event::shutdown); }

 private:
  void settle() override { states_.settle(); }
  void begin_evaluation() override {
    if (Shards* const shards = states_.shards()) shards->begin_evaluation();
  }
  void end_evaluation() override {
    if (Shards* const shards = states_.shards()) shards->end_evaluation();
  }
  void fire_quietly(Event event);
  void check_threads() override;
  Table run_file(const std::vector<std::string>& set) const override;
  std::unique_ptr<Network> build(std::uint64_t seed) override;
  void connect_metrics();
  void set_inspectors();
  void open_data();
  const plugins::LoadedPlugin& code_of(const plugins::PluginFile& file);
  void load_parts(const std::string& slot, const ManifestData& manifest, const Table& options,
                  const plugins::Registry& registry, PartCode& parts);
  template <class Interface>
  Filled<Interface> filled(std::string_view address) {
    ActivePlugin& plugin = live_.layer.plugin(address);
    return {&plugin.slot(), &plugin.as<Interface>()};
  }

  const plugins::Registry& registry_;
  std::atomic<bool> thread_failed_{false};  ///< a plugin's thread threw
  HostOutputs outputs_;
  std::map<std::string, plugins::LoadedPlugin> code_;  ///< by path, digest and place in the file
  Live live_;
  RunStates states_;
  std::unique_ptr<StrictState> sample_;     ///< null: nothing is looked at, or everything is
  std::unique_ptr<UnsavedState> unsaved_;   ///< null: nobody looks
  std::list<ActivePlugin> member_metrics_;  ///< set if the executor has several members
  LoopParts parts_;
  std::unique_ptr<Loop> loop_;
};

}  // namespace trainyard::train
