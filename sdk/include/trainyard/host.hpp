// Services of the host to a plugin: log, metrics, random streams, threads, batches, and the plugins it is made
// of.
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

/// What holds for the whole of a run.
struct RunFacts {
  std::string directory;       ///< where its files go
  std::string device = "cpu";  ///< that it trains on, as LibTorch calls it: "cuda:0"
  Ranks* ranks = nullptr;      ///< those that train together (ranks.hpp); null: a single one
};

enum class LogLevel : std::uint8_t { debug, info, warning, error };

class Host {
 public:
  virtual ~Host() = default;

  /// One line for the user, prefixed by the host with the plugin's name. Any thread.
  virtual void log(LogLevel level, std::string_view message) = 0;

  /// One line of the run's journal, at the current step: something that the plugin did, and why. Loop thread.
  virtual void journal(std::string_view what, std::string_view why) = 0;

  /// Adds a number to the run's metrics at the current step; within eval_start and eval_end to those of the
  /// evaluation. Loop thread.
  virtual void metric(std::string_view name, double value) = 0;

  /// A stream of this plugin's own, keyed by the run's seed and `purpose`. Any thread.
  virtual RandomStream random(std::string_view purpose) const = 0;

  /// Any thread.
  virtual const RunFacts& run() const = 0;

  /// The first micro-batches that the run reads of a split ("train", "val", "test"), at most `count`, on the
  /// run's device: to measure or trace with. The run's own place in the data stays as it is. Throws
  /// ConfigError where the run has no such split. Loop thread, from model_ready on.
  virtual std::vector<Batch> batches(std::string_view split, std::int64_t count) = 0;

  /// Runs `work` on a thread named after the plugin; it should end soon after its token asks to. What it
  /// throws is reported as this plugin's error at the next step. The thread is asked to stop and joined when
  /// the handle goes, and by the host at the end of the run. Any thread.
  virtual std::shared_ptr<void> thread(std::string_view name, std::function<void(std::stop_token)> work) = 0;

  /// Gives up on a thread, by its handle, that is in a call which does not return: it is asked to stop, and
  /// nobody waits for it, at the end of the run either. This plugin's object stays for good. Loop thread.
  virtual void leave(std::shared_ptr<void> thread) = 0;

  /// Asks for another plugin, or other options ("lr=1e-4"), in a slot, as trainyard ctl swap does; prepared
  /// beside the run and done at a safe point to come. What becomes of it is in the journal. `type` empty: the
  /// same plugin. Loop thread.
  virtual void swap(std::string_view slot, std::string_view type,
                    const std::vector<std::string>& options) = 0;

  /// Makes the plugin of a table of one of the caller's options (PluginList). Throws ConfigError where it has
  /// state, else what its constructor throws. Loop thread.
  virtual std::unique_ptr<Plugin> make(std::string_view kind, const Table& table) = 0;
};

/// The plugins of an option that is a list of them, in its order.
template <class Interface>
std::vector<std::unique_ptr<Interface>> make_plugins(Host& host, const PluginList<Interface>& list) {
  std::vector<std::unique_ptr<Interface>> made;
  for (const Table& table : list.tables)
    made.emplace_back(static_cast<Interface*>(host.make(Interface::kind.name, table).release()));
  return made;
}

}  // namespace trainyard
