// A subscriber whose hooks are any callables: a plugin's place on the bus without a plugin.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <utility>

#include "core/engine/events/bus.hpp"

namespace trainyard::test {

class FreeHook {
 public:
  explicit FreeHook(const std::string& id) {
    subscriber.participant = {id, id, {}};
    subscriber.slot = subscriber.address = "hooks." + id;
    subscriber.self = this;
  }
  FreeHook(const FreeHook&) = delete;
  FreeHook& operator=(const FreeHook&) = delete;

  /// Subscribes, before the bus is made: once an event. A hook that declares writes is a transform.
  HookSpec& on(Event event, std::function<void(StepContext&)> body, Regions writes = {}) {
    bodies_.emplace_back(event, std::move(body));
    HookSpec spec;
    spec.event = event;
    spec.writes = writes;
    spec.phase = writes.empty() ? Phase::observe : Phase::transform;
    spec.call = [](void* self, StepContext& context) {
      for (auto& [when, run] : static_cast<FreeHook*>(self)->bodies_)
        if (when == context.event()) run(context);
    };
    return subscriber.participant.hooks.emplace_back(std::move(spec));
  }

  events::Subscriber subscriber;

 private:
  std::deque<std::pair<Event, std::function<void(StepContext&)>>> bodies_;
};

}  // namespace trainyard::test
