// A plugin in its slot of a running training: its code, its object, its services and its place on the bus.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <trainyard/batch.hpp>
#include <trainyard/host.hpp>
#include <trainyard/plugin.hpp>
#include <trainyard/state.hpp>

#include "core/engine/events/bus.hpp"
#include "core/plugins/kinds.hpp"
#include "core/plugins/loader.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::train {

/// Receives what plugins send through their services; the run fills it in.
struct HostOutputs {
  std::function<void(LogLevel, const std::string& message)> log = [](LogLevel, const std::string&) {};
  std::function<void(const std::string& who, std::string_view what, std::string_view why)> journal =
      [](const std::string&, std::string_view, std::string_view) {};
  std::function<void(std::string name, double value)> metric = [](const std::string&, double) {};
  std::function<void(config::SwapRequest request, const std::string& who)> swap =
      [](const config::SwapRequest&, const std::string&) {};
  std::function<std::vector<Batch>(std::string_view split, std::int64_t count)> batches =
      [](std::string_view, std::int64_t) { return std::vector<Batch>(); };
  std::function<void()> thread_failed = [] {};  ///< a plugin's own thread threw: see thread_failed()
  RunFacts run;
  std::uint64_t seed = 0;
};

/// The code of the plugins that are parts of another plugin (PluginList), by kind and name.
using PartCode = std::map<std::pair<std::string, std::string>, plugins::LoadedPlugin, std::less<>>;

/// The host as one plugin sees it.
class HostServices : public Host, public std::enable_shared_from_this<HostServices> {
 public:
  HostServices(const config::SlotConfig& slot, const HostOutputs& outputs, PartCode parts = {})
      : slot_(slot.slot),
        plugin_(slot.type),
        owner_(slot.id),
        parts_(std::move(parts)),
        seed_(outputs.seed),
        run_(outputs.run),
        outputs_(&outputs) {}
  ~HostServices() override;

  void log(LogLevel level, std::string_view message) override;
  void journal(std::string_view what, std::string_view why) override;
  void metric(std::string_view name, double value) override;
  RandomStream random(std::string_view purpose) const override;
  const RunFacts& run() const override { return run_; }
  std::vector<Batch> batches(std::string_view split, std::int64_t count) override;
  std::shared_ptr<void> thread(std::string_view name, std::function<void(std::stop_token)> work) override;
  void swap(std::string_view slot, std::string_view type, const std::vector<std::string>& options) override;
  std::unique_ptr<Plugin> make(std::string_view kind, const Table& table) override;
  void leave(std::shared_ptr<void> thread) override;

  /// Called when the plugin lives on without its slot: its requests have no effect from here on.
  void close();
  const PartCode& parts() const { return parts_; }
  /// Returns true if a thread of the plugin threw; takes no lock.
  bool thread_failed() const { return thread_failed_; }
  /// Returns the error of the first such thread, once.
  std::string take_thread_error();

 private:
  struct Worker;
  template <class Call>
  void with_outputs(Call&& call);

  std::string slot_, plugin_, owner_;
  PartCode parts_;
  const std::uint64_t seed_;
  const RunFacts run_;
  std::mutex open_;
  const HostOutputs* outputs_;  ///< null once closed
  std::mutex mutex_;
  std::vector<std::weak_ptr<Worker>> workers_;
  std::string thread_error_;
  std::atomic<bool> thread_failed_{false};
};

/// A plugin's object, which is destroyed before its services.
struct PluginObject final : HostServices {
  using HostServices::HostServices;
  plugins::LoadedPlugin::Instance instance{};
};

/// Returns true if threads of this process are in calls that do not return. Such a process has to end by
/// _exit, without destroying its objects.
bool left_threads();

class ActivePlugin {
 public:
  /// Constructs the plugin of a slot. Throws PluginError.
  ActivePlugin(config::SlotConfig slot, const plugins::LoadedPlugin& code, PartCode parts,
               const HostOutputs& outputs);

  const config::SlotConfig& slot() const { return slot_; }
  /// Renames the place in the run file where others of its list came or went: hooks[1] is hooks[0] then.
  void set_place(const std::string& slot) { slot_.slot = subscriber_.slot = slot; }
  /// Returns the generation of its code in this process: 1 for the first object that was loaded.
  int generation() const { return code_.generation(); }
  const ManifestData& manifest() const { return code_.manifest(); }
  const plugins::PluginFile& file() const { return code_.file(); }
  events::Subscriber& subscriber() { return subscriber_; }
  const events::Subscriber& subscriber() const { return subscriber_; }
  HostServices& services() { return *object_; }
  /// Code on another thread locks this for a call of the object, which may outlive the slot.
  std::weak_ptr<HostServices> object() const { return object_->weak_from_this(); }

  /// Returns the object as the interface of its kind; the registry has checked the kind and the loader the
  /// fingerprint.
  template <class Interface>
  Interface& as() {
    return static_cast<Interface&>(*object_->instance.plugin);
  }

  /// Returns true for kinds with state. Sinks have none: they cut their own files when a run is resumed; nor
  /// has a checkpointer, as it saves the state.
  bool has_state() const { return plugins::find_kind(slot_.kind)->has_state; }
  /// Returns what the plugin saves; empty if it has no state.
  State state() const;

 private:
  config::SlotConfig slot_;
  plugins::LoadedPlugin code_;
  std::shared_ptr<PluginObject> object_;
  events::Subscriber subscriber_;
};

}  // namespace trainyard::train
