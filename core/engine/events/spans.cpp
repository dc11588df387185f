#include "core/engine/events/spans.hpp"

#include <utility>

namespace trainyard::events {

thread_local Spans spans;

void Spans::set_watchers(const Bus* bus, std::vector<Watcher> watchers) {
  bus_ = bus;
  watchers_ = std::move(watchers);
  wanting_.clear();
  on_ = false;
}

void Spans::forget(const Bus* bus) {
  if (bus_ == bus) set_watchers(nullptr, {});
}

bool Spans::begin_step(std::int64_t step) {
  step_ = step;
  wanting_.clear();
  for (const Watcher& each : watchers_)
    if (!*each.disabled && each.self->wants_spans(step)) wanting_.push_back(each);
  return on_ = !wanting_.empty();
}

void Spans::record(Span::What what, std::string_view name, std::string_view plugin,
                   std::chrono::steady_clock::time_point begin) const {
  const Span span{what, name, plugin, step_, begin, std::chrono::steady_clock::now()};
  for (const Watcher& each : wanting_) each.self->span(span);
}

}  // namespace trainyard::events
