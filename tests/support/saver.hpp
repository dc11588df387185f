// A shipped checkpointer with the host's own services, without a run around it.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <trainyard/checkpointer.hpp>

#include "core/engine/train/active_plugin.hpp"
#include "support/plugin.hpp"

namespace trainyard::test {

class Saver {
 public:
  Saver(const std::string& name, CheckpointStore& store, const Table& options = {})
      : plugin(make<Checkpointer>(name, options)) {
    outputs_.log = [this](LogLevel level, const std::string& message) {
      const std::lock_guard lock(mutex_);
      if (level == LogLevel::error) errors_.push_back(message);
      if (level == LogLevel::warning) warnings_.push_back(message);
    };
    plugin->set_host(services_);
    plugin->open(store);
  }

  /// What was logged as an error.
  std::vector<std::string> errors() {
    const std::lock_guard lock(mutex_);
    return errors_;
  }
  std::vector<std::string> warnings() {
    const std::lock_guard lock(mutex_);
    return warnings_;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> errors_, warnings_;
  train::HostOutputs outputs_;
  train::HostServices services_{{.slot = "checkpoint", .kind = "checkpointer", .id = "checkpointer"},
                                outputs_};

 public:
  std::unique_ptr<Checkpointer> plugin;  ///< goes first
};

}  // namespace trainyard::test
