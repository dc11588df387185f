// Everything a run consists of, made from its configuration: plugins, data, network, optimizer, bus and loop.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <trainyard/checkpointer.hpp>
#include <trainyard/dataset.hpp>
#include <trainyard/model.hpp>
#include <trainyard/sampler.hpp>
#include <trainyard/state.hpp>

#include "core/engine/train/active_plugin.hpp"
#include "core/engine/train/loop.hpp"
#include "core/engine/train/state_copy.hpp"
#include "core/plugins/registry.hpp"
#include "core/rundir/quarantine.hpp"

namespace trainyard::train {

class PreparedSwap;

/// Plugins that others than the run call: sinks and the checkpointer.
struct OutsidePlugins {
  std::function<void(ActivePlugin&)> open = [](ActivePlugin&) {};  ///< one that will come in; beside the run
  std::function<void(ActivePlugin&)> settle = [](ActivePlugin&) {};  ///< finish what one that goes has begun
  std::function<void(ActivePlugin&)> use = [](ActivePlugin&) {};  ///< a slot has another plugin from here on
};

class Run {
 public:
  /// Loads the plugins, opens the data and reports its scale. Throws Error. `registry` outlives the run. The
  /// run fills in the metric and the seed of `outputs`.
  Run(config::RunConfig config, const plugins::Registry& registry, HostOutputs outputs = {});

  /// Builds the network, as far as `model show` needs it.
  void build_model();
  /// Builds the rest: loss, metrics, optimizer, schedule, loop. `parts` comes with what the caller adds
  /// (outputs, signal); the run fills in what is its own.
  Loop& build_loop(LoopParts parts);

  /// Everything that has to be saved in order to go on from here: tensors by handle. At a safe point.
  Snapshot snapshot() const;
  /// Goes on from what was saved, within Loop::fit. A plugin that the checkpoint does not know begins anew,
  /// one that was disabled then stays so, and the state of one that is gone is left; all are told to `note`.
  /// Throws Error where a state does not fit.
  void restore(const std::vector<State>& states, const std::function<void(const std::string&)>& note);

  /// The text of the run file that the configuration came from, before swaps; by default the configuration's.
  void set_file(std::string resolved_toml) { file_ = std::move(resolved_toml); }
  void set_outside(OutsidePlugins outside) { outside_ = std::move(outside); }
  /// Plugins that the run was begun without, and that no swap may bring.
  void set_quarantined(std::vector<control::Quarantined> plugins) { quarantined_ = std::move(plugins); }
  void set_checkpoint_interval(std::int64_t steps) { parts_.checkpoint.every = steps; }
  /// Swaps committed so far, before a resume too.
  std::int64_t swaps() const { return swaps_; }

  /// Makes swaps ready beside the run, as one: checks what they make of it as a run file, loads the code,
  /// constructs and opens the plugins. One thread at a time, not while a commit runs. Throws Error; the run
  /// does not notice. `after`: for the run as that one would leave it, which outlives this one.
  std::unique_ptr<PreparedSwap> prepare(const std::vector<config::SwapRequest>& swaps,
                                        PreparedSwap* after = nullptr);
  /// Between two steps, on the loop thread: hands the state over and publishes the new plugins. Throws Error
  /// where an old or a new plugin objects; the run is then as it was. The swap holds the old ones from then
  /// on. Only the latest preparation may be committed. `watched`: gives what the run was before it, a copy
  /// that may be under way still: the run settles it before it writes what is copied.
  std::shared_ptr<StateCopy> commit(PreparedSwap& swap, bool watched = false);
  /// The newest of the commits that stand is undone: the old plugins return. State is the caller's to
  /// restore.
  void take_back(PreparedSwap& swap);
  /// Swaps that come together, at the safe point of a step.
  struct Planned {
    std::int64_t step;
    std::vector<config::SwapRequest> swaps;
  };
  /// [[swap]] of the run file, in the order of time.
  std::vector<Planned> plan() const;
  /// Tries a plan on the run before it begins, as far as that can be told: each is prepared for the run as
  /// those before it leave it, takes the state over, and nothing is committed. Throws ConfigError for the
  /// first that cannot be made.
  void rehearse(const std::vector<Planned>& plan);
  /// Throws NumericError where a parameter or a buffer is not finite; guard.nan = "off" lets it pass.
  void check_weights() const;
  /// To where the run was when it saved these states; plugins that were disabled since are left out.
  void go_back(const std::vector<State>& states);

  ActivePlugin& checkpointer() { return plugin_of(config_.checkpoint); }

  const config::RunConfig& config() const { return config_; }
  const RunScale& scale() const { return scale_; }
  const BatchSchema& schema() const { return schema_; }
  Network& network() { return *network_; }
  Optimizer& optimizer() { return *optimizer_; }
  Loop& loop() { return *loop_; }
  const ScheduleCurve& schedule() const { return *curve_; }
  const Clock& clock() const { return context_.clock_; }
  events::Bus& bus() { return *bus_; }
  /// All plugins, in config order.
  std::deque<ActivePlugin>& plugins() { return plugins_; }
  at::Device device() const { return device_; }
  std::int64_t samples(const std::string& split) const;

  /// Parameters, then buffers: what a file of weights holds.
  std::vector<NamedTensor> weights() const;

  /// SHA-256 over named parameters and buffers; over the optimizer's state. Wait for the device.
  std::string model_digest() const;
  std::string optimizer_digest() const;

  /// Fires exception after an error; those of its hooks are logged only.
  void fail();
  /// Fires shutdown, whatever came before; errors of hooks are logged only.
  void shutdown();

 private:
  friend class PreparedSwap;
  struct Split {
    const Dataset* dataset = nullptr;
    std::unique_ptr<Dataset> guarded;  ///< the same, within the guard of its slot
    std::unique_ptr<Sampler> sampler;
    std::unique_ptr<data::Loader> loader;
  };
  /// Who makes a split.
  struct Sources {
    const config::SplitConfig* config;
    Dataset* dataset;
    ActivePlugin* sampler;  ///< null: the dataset's own order
    ActivePlugin* loss;
  };

  void fire_quietly(Event event);
  void set_inspectors();
  static const plugins::PluginFile& find_plugin(const std::string& slot, const std::string& kind,
                                                const std::string& type, const plugins::Registry& registry);
  const plugins::LoadedPlugin& code_of(const plugins::PluginFile& file);
  ActivePlugin make_plugin(const config::SlotConfig& slot, const plugins::Registry& registry);
  void load_parts(const std::string& slot, const ManifestData& manifest, const Table& options,
                  const plugins::Registry& registry, PartCode& parts);
  ActivePlugin& plugin_of(const config::SlotConfig& slot);
  static Dataset& open_dataset(const std::string& name, const config::SplitConfig& split,
                               ActivePlugin& plugin);
  void open_sampler(ActivePlugin& sampler, const config::SplitConfig& train, const Dataset& training) const;
  Split make_split(const std::string& name, const Sources& sources) const;
  void open_recorder(ActivePlugin& plugin) const;
  void attach_rules(PreparedSwap* swap = nullptr);
  void connect();
  void open(PreparedSwap& swap);
  bool steady(PreparedSwap& swap, const State& state, const at::Tensor& tensor);
  void settle();
  void exchange(PreparedSwap& swap);
  void tell(ActivePlugin& plugin, Event event);
  void leave_out(const State& run, const std::function<void(const std::string&)>& note);
  ActivePlugin& filling(PreparedSwap* swap, const config::SlotConfig& slot);
  Network& network_with(PreparedSwap* swap);
  std::pair<const ScheduleCurve*, CurvePlace> curve_with(PreparedSwap* swap) const;
  void place_curve(PreparedSwap& swap, std::int64_t step);
  void place_curve(CurvePlace place);
  static void check_momentum(const ScheduleCurve& curve, const Optimizer& optimizer,
                             const config::RunConfig& config);
  RunScale scale_from(std::int64_t step) const;
  void check_schema(const std::string& name, const BatchSchema& schema) const;

  config::RunConfig config_;
  std::string config_text_;  ///< as a run file
  const plugins::Registry& registry_;
  HostOutputs outputs_;
  at::Device device_;
  std::map<std::string, plugins::LoadedPlugin> code_;  ///< by path and digest
  std::deque<ActivePlugin> plugins_;                   ///< a deque: the bus and the loop point into it
  std::map<std::string, Split> splits_;
  BatchSchema schema_;
  RunScale scale_;
  LoopContext context_;
  std::vector<std::unique_ptr<events::Inspector>> inspectors_;
  std::unique_ptr<events::Bus> bus_;
  std::shared_ptr<const DropoutPlan> dropout_;
  std::unique_ptr<Network> network_;
  Optimizer* optimizer_ = nullptr;
  std::optional<ScheduleCurve> curve_;
  CurvePlace curve_place_;
  OutsidePlugins outside_;
  std::string file_;
  std::vector<control::Quarantined> quarantined_;
  std::int64_t swaps_ = 0;
  std::shared_ptr<StateCopy> copying_;  ///< null: nothing is being copied
  LoopParts parts_;
  std::unique_ptr<Loop> loop_;
};

}  // namespace trainyard::train
