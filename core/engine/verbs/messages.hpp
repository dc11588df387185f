// Where messages of the host and of plugins go: run.log always, the sinks while they are open.
#pragma once

#include <atomic>
#include <cstdio>
#include <string>
#include <utility>

#include "core/engine/log/run_log.hpp"
#include "core/engine/save/sink_thread.hpp"

namespace trainyard::train {

/// Any thread.
class Messages {
 public:
  explicit Messages(const std::string& file) : log_(file) {}

  void send(LogLevel level, const std::string& message) {
    log_.write(level, message);
    if (level == LogLevel::debug) return;
    if (report::SinkThread* sinks = sinks_.load()) {
      Record record;
      record.what = Record::What::message;
      record.text = message;
      sinks->push(std::move(record));
    } else {
      std::fprintf(stderr, "%s\n", message.c_str());
    }
  }
  /// Null: standard error takes their place.
  void set_sinks(report::SinkThread* sinks) { sinks_ = sinks; }

 private:
  report::RunLog log_;
  std::atomic<report::SinkThread*> sinks_{nullptr};
};

}  // namespace trainyard::train
