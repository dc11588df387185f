// Tells plugins that watch them (trainyard/spans.hpp) of spans of time.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>
#include <vector>

#include <trainyard/spans.hpp>

namespace trainyard::events {

class Bus;

/// Those of the run that the thread fires events of, the one that was made last; on other threads nobody watches.
class Spans {
 public:
  struct Watcher {
    SpanWatcher* self = nullptr;
    const bool* disabled = nullptr;  ///< of its subscriber: is not asked any more once it is
  };

  /// From the next step on. `bus`: of the run; both outlive it, or its end of life is told by forget().
  void set_watchers(const Bus* bus, std::vector<Watcher> watchers);
  void forget(const Bus* bus);

  /// Ahead of each step: whether somebody wants its spans.
  bool begin_step(std::int64_t step);
  bool on() const { return on_; }

  /// Of one that ends now.
  void tell(Span::What what, std::string_view name, std::string_view plugin,
            std::chrono::steady_clock::time_point begin) const;

 private:
  const Bus* bus_ = nullptr;
  std::vector<Watcher> watchers_, wanting_;
  std::int64_t step_ = 0;
  bool on_ = false;
};

extern thread_local Spans spans;

/// A span as long as a scope, where one is wanted at its beginning. The name lives as long as the process.
class SpanScope {
 public:
  SpanScope(Span::What what, const char* name) : SpanScope(what, name, spans.on()) {}
  SpanScope(Span::What what, const char* name, bool wanted) : name_(wanted ? name : nullptr), what_(what) {
    if (wanted) [[unlikely]]
      begin_ = std::chrono::steady_clock::now();
  }
  ~SpanScope() {
    if (name_ != nullptr) [[unlikely]]
      spans.tell(what_, name_, {}, begin_);
  }
  SpanScope(const SpanScope&) = delete;
  SpanScope& operator=(const SpanScope&) = delete;

 private:
  const char* name_;
  Span::What what_;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace trainyard::events
