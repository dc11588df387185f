// Sends messages of the host and of plugins to run.log always, and to the sinks while they are open.
#pragma once

#include <atomic>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

#include "core/engine/log/run_log.hpp"
#include "core/engine/save/sink_thread.hpp"

namespace trainyard::train {

/// Used by any thread.
class Messages {
 public:
  /// `rank` is set behind the first of several ranks: there only errors reach standard error.
  explicit Messages(const std::string& file, std::optional<int> rank = {}) : log_(file), rank_(rank) {}

  void send(LogLevel level, const std::string& message) {
    log_.write(level, message);
    if (level == LogLevel::debug) return;
    if (rank_) {
      if (level == LogLevel::error) std::fprintf(errors_, "rank %d: %s\n", *rank_, message.c_str());
      return;
    }
    if (report::SinkThread* sinks = sinks_.load()) {
      Record record;
      record.what = Record::What::message;
      record.text = message;
      sinks->push(std::move(record));
    } else {
      std::fprintf(errors_, "%s\n", message.c_str());
    }
  }
  /// Sets the sinks for messages; null: standard error takes their place.
  void set_sinks(report::SinkThread* sinks) { sinks_ = sinks; }

 private:
  report::RunLog log_;
  std::FILE* const errors_ = stderr;  ///< taken early: what comes here may have been printed to stderr
  std::optional<int> rank_;
  std::atomic<report::SinkThread*> sinks_{nullptr};
};

}  // namespace trainyard::train
