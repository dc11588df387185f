// Fires the events of a run. If an opening event has fired, the closing one fires as well.
#pragma once

#include <trainyard/error.hpp>
#include <trainyard/event.hpp>

#include "core/engine/train/loop_parts.hpp"

namespace trainyard::train {

class Brackets {
 public:
  explicit Brackets(LoopParts& parts) : parts_(parts) {}

  void fire(Event event) {
    if (weights_written_at(event)) parts_.owner->settle();
    parts_.bus->fire(event, *parts_.context);
  }

  /// Fires `open`, runs `body`, fires `close`, which the body may choose, also if `body` throws.
  template <class Body>
  void bracket(Event open, const Event& close, Body&& body) {
    close_after(close, [&] {
      fire(open);
      body();
    });
  }

  template <class Body>
  void close_after(const Event& close, Body&& body) {
    try {
      body();
    } catch (...) {
      close_quietly(close);
      throw;
    }
    fire(close);
  }

  /// Fires an event while an error is thrown; an error of its own is only journaled.
  void close_quietly(Event close) {
    try {
      fire(close);
    } catch (const Error& error) {
      parts_.host->journal("host", "error while closing after an error", error.what());
    }
  }

 private:
  LoopParts& parts_;
};

}  // namespace trainyard::train
