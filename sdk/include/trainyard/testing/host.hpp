// Every service of the host (trainyard/host.hpp), for the test of a plugin: it keeps what the plugin said and
// asked for, and returns what the test has set.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <trainyard/batch.hpp>
#include <trainyard/host.hpp>

namespace trainyard::testing {

class FakeHost : public Host {
 public:
  struct Line {
    LogLevel level;
    std::string text;
  };
  struct Swap {
    std::string slot, type;
    std::vector<std::string> options;
  };

  FakeHost();
  ~FakeHost() override;

  // A test sets these before the call that asks for them.

  RunFacts facts;                                               ///< `directory` is that of the test's process
  std::uint64_t seed = 1;                                       ///< seed of random streams
  std::map<std::string, std::vector<Batch>, std::less<>> data;  ///< micro-batches of each split
  /// Makes the plugins that others consist of; the default throws a ConfigError that says there are none.
  std::function<std::unique_ptr<Plugin>(std::string_view kind, const Table& table)> maker;

  // These record what the plugin did.

  std::vector<Line> log_lines() const;
  /// Returns whether a line of that level or above contains `part`.
  bool logged(std::string_view part, LogLevel least = LogLevel::debug) const;
  std::vector<std::pair<std::string, std::string>> journal_entries;  ///< what, and why
  std::map<std::string, std::vector<double>, std::less<>> metrics;   ///< by name, in the order of the calls
  std::vector<Swap> swaps;
  /// Returns the errors that plugins' threads threw, once they have ended.
  std::vector<std::string> thread_errors() const;

  // Host.

  void log(LogLevel level, std::string_view message) override;
  void journal(std::string_view what, std::string_view why) override;
  void metric(std::string_view name, double value) override;
  RandomStream random(std::string_view purpose) const override;
  const RunFacts& run() const override { return facts; }
  /// Throws ConfigError for a split that the test has not set.
  std::vector<Batch> batches(std::string_view split, std::int64_t count) override;
  /// Starts a real thread, which is asked to stop and joined when the handle or the host is destroyed.
  std::shared_ptr<void> thread(std::string_view name, std::function<void(std::stop_token)> work) override;
  void leave(std::shared_ptr<void> thread) override;
  void swap(std::string_view slot, std::string_view type, const std::vector<std::string>& options) override;
  std::unique_ptr<Plugin> make(std::string_view kind, const Table& table) override;

 private:
  /// It outlives the host where a thread was left behind.
  struct Said {
    std::mutex mutex;
    std::vector<Line> lines;
    std::vector<std::string> errors;
  };
  std::shared_ptr<Said> said_ = std::make_shared<Said>();
  std::vector<std::weak_ptr<std::jthread>> threads_;
};

}  // namespace trainyard::testing
