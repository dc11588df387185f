// Reports spans of time to the plugins that watch them (trainyard/spans.hpp).
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>
#include <vector>

#include <trainyard/spans.hpp>

namespace trainyard::events {

class Bus;

/// The watchers of the run whose events this thread fires (the last one made); other threads have none.
class Spans {
 public:
  struct Watcher {
    SpanWatcher* self = nullptr;
    const bool* disabled = nullptr;  ///< its subscriber's flag: once true, it is not asked any more
  };

  /// Takes effect with the next step. `bus` is the run's; both outlive this, or forget() is called before.
  void set_watchers(const Bus* bus, std::vector<Watcher> watchers);
  void forget(const Bus* bus);

  /// Called ahead of each step; returns true if a watcher wants the step's spans.
  bool begin_step(std::int64_t step);
  bool on() const { return on_; }

  /// Reports a span that began at `begin` and ends now to the watchers that want it.
  void record(Span::What what, std::string_view name, std::string_view plugin,
              std::chrono::steady_clock::time_point begin) const;

 private:
  const Bus* bus_ = nullptr;
  std::vector<Watcher> watchers_, wanting_;
  std::int64_t step_ = 0;
  bool on_ = false;
};

extern thread_local Spans spans;

/// A span as long as a scope, if one is wanted when it begins. The name must live as long as the process.
class SpanScope {
 public:
  SpanScope(Span::What what, const char* name) : SpanScope(what, name, spans.on()) {}
  SpanScope(Span::What what, const char* name, bool wanted) : name_(wanted ? name : nullptr), what_(what) {
    if (wanted) [[unlikely]]
      begin_ = std::chrono::steady_clock::now();
  }
  ~SpanScope() {
    if (name_ != nullptr) [[unlikely]]
      spans.record(what_, name_, {}, begin_);
  }
  SpanScope(const SpanScope&) = delete;
  SpanScope& operator=(const SpanScope&) = delete;

 private:
  const char* name_;
  Span::What what_;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace trainyard::events
