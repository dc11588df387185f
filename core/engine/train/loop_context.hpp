// The context of a run's events, from the loop's side: it may write what hooks may only read.
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <string>

#include <trainyard/context.hpp>
#include <trainyard/error.hpp>

#include <trainyard/event.hpp>

namespace trainyard::train {

class LoopContext final : public StepContext {
 public:
  LoopContext() { services_ = &hub_; }

  StepContext& enter(Event event) {
    event_ = event;
    return *this;
  }

  using StepContext::batch_;
  using StepContext::clock_;
  using StepContext::evaluating_;
  using StepContext::loss_;
  using StepContext::loss_scale_;
  using StepContext::loss_share_;
  using StepContext::micro_;
  using StepContext::micros_;
  using StepContext::network_;
  using StepContext::number_;
  using StepContext::optimizer_;
  using StepContext::output_;
  using StepContext::repeats_;
  using StepContext::run_scale_;
  using StepContext::skip_reason_;
  using StepContext::split_;

  /// True once where a hook asked for it; the request is taken.
  bool take(Control control) {
    const bool asked = (hub_.requested & static_cast<unsigned>(control)) != 0;
    hub_.requested &= ~static_cast<unsigned>(control);
    return asked;
  }
  /// All that is asked for and not taken, as bits.
  unsigned requests() const { return hub_.requested; }
  void set_requests(unsigned requests) { hub_.requested = requests; }
  bool asked(Control control) const { return (hub_.requested & static_cast<unsigned>(control)) != 0; }

  /// What hooks read as StepContext::metric and metrics, until the next step or evaluation.
  std::map<std::string, double, std::less<>>& metrics() { return hub_.values; }
  const std::map<std::string, double, std::less<>>& metrics() const { return hub_.values; }

  /// Where requests are written down: plugin, what, why.
  std::function<void(std::string_view plugin, Control control, std::string_view reason)> on_request;

 private:
  static void refuse_unless_taken(Event event, Control control) {
    const auto bit = static_cast<unsigned>(control);
    const unsigned taken = controls(event);
    if ((taken & bit) == bit) return;
    throw PluginError("asks for " + controls_text(bit) + " at " + std::string(name(event)) +
                      ", which does not take it; there a hook may ask for: " +
                      (taken == 0 ? "nothing" : controls_text(taken)));
  }

  struct Hub final : Services {
    explicit Hub(LoopContext& owner) : context(owner) {}
    double metric(std::string_view name) const override {
      const auto found = values.find(name);
      return found == values.end() ? std::nan("") : found->second;
    }
    const std::map<std::string, double, std::less<>>& metrics() const override { return values; }
    void request(Control control, std::string_view plugin, std::string_view reason) override {
      refuse_unless_taken(context.event(), control);
      requested |= static_cast<unsigned>(control);
      if (context.on_request) context.on_request(plugin, control, reason);
    }
    LoopContext& context;
    unsigned requested = 0;
    std::map<std::string, double, std::less<>> values;
  };

  Hub hub_{*this};
};

}  // namespace trainyard::train
