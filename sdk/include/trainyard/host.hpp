// Services of the host for a plugin: log, metrics, random streams, threads, batches, and the plugins that it
// consists of.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include <trainyard/contract.hpp>
#include <trainyard/plugin.hpp>
#include <trainyard/random.hpp>
#include <trainyard/value.hpp>

TRAINYARD_CONTRACT("host.hpp");

namespace trainyard {

struct Batch;
class Ranks;

/// Facts that hold for the whole of a run.
struct RunFacts {
  std::string directory;       ///< folder for the run's files
  std::string device = "cpu";  ///< device that it trains on, as LibTorch calls it: "cuda:0"
  Ranks* ranks = nullptr;      ///< ranks that train together (ranks.hpp); null: a single one
};

enum class LogLevel : std::uint8_t { debug, info, warning, error };

class Host {
 public:
  virtual ~Host() = default;

  /// Logs one line for the user; the host prefixes the plugin's name. Any thread.
  virtual void log(LogLevel level, std::string_view message) = 0;

  /// Adds a line to the journal, at the current step: something that the plugin did, and why. Loop thread.
  virtual void journal(std::string_view what, std::string_view why) = 0;

  /// Adds a number to the run's metrics at the current step; within eval_start and eval_end to those of the
  /// evaluation. Loop thread.
  virtual void metric(std::string_view name, double value) = 0;

  /// Returns a stream of this plugin's own, keyed by the run's seed and `purpose`. Any thread.
  virtual RandomStream random(std::string_view purpose) const = 0;

  /// Returns the facts of the run. Any thread.
  virtual const RunFacts& run() const = 0;

  /// Returns the first micro-batches that the run reads of a split ("train", "val", "test"), at most `count`,
  /// on the run's device: to measure or trace with. The run's own place in the data stays as it is. Throws
  /// ConfigError where the run has no such split. Loop thread, from model_ready on.
  virtual std::vector<Batch> batches(std::string_view split, std::int64_t count) = 0;

  /// Runs `work` on a thread named after the plugin; it should end soon after its token asks to. An exception
  /// of it is reported as this plugin's error at the next step. The thread is asked to stop and joined when
  /// the handle is destroyed, and by the host at the end of the run. Any thread.
  virtual std::shared_ptr<void> thread(std::string_view name, std::function<void(std::stop_token)> work) = 0;

  /// Gives up on a thread, by its handle, whose call does not return: it is asked to stop, and nobody waits
  /// for it, not even at the end of the run. This plugin's object is then never destroyed. Loop thread.
  virtual void leave(std::shared_ptr<void> thread) = 0;

  /// Asks for another plugin, or other options ("lr=1e-4"), in a slot, as trainyard ctl swap does. The host
  /// prepares it beside the run, does it at a later safe point, and journals the outcome. `type` empty: the
  /// same plugin. Loop thread.
  virtual void swap(std::string_view slot, std::string_view type,
                    const std::vector<std::string>& options) = 0;

  /// Makes the plugin of a table of one of the caller's options (PluginList). Throws ConfigError where that
  /// plugin has state, else what its constructor throws. Loop thread.
  virtual std::unique_ptr<Plugin> make(std::string_view kind, const Table& table) = 0;
};

/// Returns the plugins of an option that is a list of them, in its order.
template <class Interface>
std::vector<std::unique_ptr<Interface>> make_plugins(Host& host, const PluginList<Interface>& list) {
  std::vector<std::unique_ptr<Interface>> made;
  for (const Table& table : list.tables)
    made.emplace_back(static_cast<Interface*>(host.make(Interface::kind.name, table).release()));
  return made;
}

}  // namespace trainyard
