// The context of a run's events, for the loop: it may write what hooks may only read.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include <trainyard/context.hpp>
#include <trainyard/error.hpp>

#include <trainyard/event.hpp>

namespace trainyard::train {

class LoopContext final : public StepContext {
 public:
  LoopContext() {
    services_ = &hub_;
    caller_ = &nobody;
  }

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

  /// Other threads may write the weights: the executor fires the event within a pass of its own.
  bool weights_move_ = false;

  /// Requests that are not taken yet, as bits, by who asked: the address of a plugin, or another name.
  using Requests = std::map<std::string, unsigned, std::less<>>;
  Requests& requests() { return requests_; }
  const Requests& requests() const { return requests_; }

  bool asked(Control control) const {
    return std::ranges::any_of(requests_,
                               [&](const auto& each) { return (each.second & bit(control)) != 0; });
  }
  /// Takes a request: returns true if anybody asked for it.
  bool take(Control control) {
    const bool found = asked(control);
    if (found)
      for (auto& [who, bits] : requests_) bits &= ~bit(control);
    return found;
  }
  /// Returns false if `who` has asked for it already.
  bool ask(Control control, std::string_view who) {
    unsigned& bits = ((shared_ & bit(control)) != 0 ? waiting_ : requests_)[std::string(who)];
    const unsigned before = std::exchange(bits, bits | bit(control));
    return bits != before;
  }

  /// On several ranks all do what one asks for. Such requests wait until a step has told all ranks.
  void share(unsigned controls) { shared_ = controls; }
  Requests& waiting() { return waiting_; }
  const Requests& waiting() const { return waiting_; }
  unsigned waiting_bits() const {
    unsigned bits = 0;
    for (const auto& each : waiting_) bits |= each.second;
    return bits;
  }
  /// Takes over requests that all ranks know of. "ranks" is the asker of those not made by this rank.
  void agree(unsigned controls) {
    unsigned left = controls & shared_;
    for (auto& [who, bits] : waiting_) {
      requests_[who] |= bits & controls;
      left &= ~std::exchange(bits, bits & ~controls);
    }
    if (left != 0) requests_["ranks"] |= left;
  }

  /// The values that hooks read as StepContext::metric and metrics, until the next step or evaluation.
  std::map<std::string, double, std::less<>>& metrics() { return hub_.values; }
  const std::map<std::string, double, std::less<>>& metrics() const { return hub_.values; }

  /// Called with each request, to write it down: plugin, what, why.
  std::function<void(std::string_view plugin, Control control, std::string_view reason)> on_request;

 private:
  static constexpr unsigned bit(Control control) { return static_cast<unsigned>(control); }

  static void refuse_unless_taken(Event event, Control control) {
    const unsigned taken = controls(event);
    if ((taken & bit(control)) == bit(control)) return;
    throw PluginError("asks for " + controls_text(bit(control)) + " at " + std::string(name(event)) +
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
    void request(Control control, const Caller& who, std::string_view reason) override {
      refuse_unless_taken(context.event(), control);
      if (context.ask(control, who.address) && context.on_request)
        context.on_request(who.id, control, reason);
    }
    void withdraw(Control control, const Caller& who) override {
      for (Requests* each : {&context.requests_, &context.waiting_})
        if (const auto found = each->find(who.address); found != each->end()) found->second &= ~bit(control);
    }
    LoopContext& context;
    std::map<std::string, double, std::less<>> values;
  };

  Hub hub_{*this};
  Requests requests_, waiting_;
  unsigned shared_ = 0;
};

}  // namespace trainyard::train
