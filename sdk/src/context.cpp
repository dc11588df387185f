#include <trainyard/context.hpp>

#include <limits>
#include <string>

#include <trainyard/error.hpp>

namespace trainyard {
namespace {

[[noreturn]] void missing(Event event, const char* what, const char* when) {
  throw PluginError("there is no " + std::string(what) + " at " + std::string(name(event)) + ": it exists " +
                    when);
}

void demand(const StepContext::Caller* caller, Region region, Event event) {
  if (caller != nullptr && caller->writes.contains(region)) return;
  const std::string wanted(name(region));
  throw PluginError("the hook writes region " + wanted + " at " + std::string(name(event)) +
                    " but did not declare it: add .writes(Region::" + wanted + ") to the subscription");
}

}  // namespace

const StepContext::Caller StepContext::nobody{"", {}};

void StepContext::gone() const {
  throw PluginError(
      "uses a context after the hook that it was lent to has returned: keep what you need of it, not the "
      "context; on a thread of your own, hand over copies");
}

Network& StepContext::network() const {
  lent();
  if (network_ == nullptr) missing(event_, "model", "from model_ready on");
  return *network_;
}

Optimizer& StepContext::optimizer() const {
  lent();
  if (optimizer_ == nullptr) missing(event_, "optimizer", "from optimizer_ready on");
  return *optimizer_;
}

const Batch& StepContext::batch() const {
  lent();
  if (batch_ == nullptr) missing(event_, "batch", "from after_fetch to batch_end and in evaluation");
  return *batch_;
}

const at::Tensor& StepContext::output() const {
  lent();
  if (!output_.defined()) missing(event_, "model output", "from after_forward to micro_end");
  return output_;
}

const at::Tensor& StepContext::loss() const {
  lent();
  if (!loss_.defined()) missing(event_, "loss", "from after_loss to micro_end");
  return loss_;
}

double StepContext::metric(std::string_view name) const {
  lent();
  return services_ == nullptr ? std::numeric_limits<double>::quiet_NaN() : services_->metric(name);
}

const std::map<std::string, double, std::less<>>& StepContext::Services::metrics() const {
  static const std::map<std::string, double, std::less<>> none;
  return none;
}

const std::map<std::string, double, std::less<>>& StepContext::metrics() const {
  lent();
  if (services_ == nullptr) missing(event_, "loop with metrics", "within a run");
  return services_->metrics();
}

Batch& StepContext::mutable_batch() {
  demand(lent().caller_, Region::batch, event_);
  if (batch_ == nullptr) missing(event_, "batch", "from after_fetch to batch_end and in evaluation");
  return *batch_;
}

at::Tensor& StepContext::mutable_output() {
  demand(lent().caller_, Region::outputs, event_);
  if (!output_.defined()) missing(event_, "model output", "from after_forward to micro_end");
  return output_;
}

at::Tensor& StepContext::mutable_loss() {
  demand(lent().caller_, Region::outputs, event_);
  if (!loss_.defined()) missing(event_, "loss", "from after_loss to micro_end");
  return loss_;
}

void StepContext::request(Control control, std::string_view reason) {
  demand(lent().caller_, Region::control, event_);
  if (services_ == nullptr) missing(event_, "loop to ask", "within a run");
  services_->request(control, *caller_, reason);
}

void StepContext::withdraw(Control control) {
  demand(lent().caller_, Region::control, event_);
  if (services_ == nullptr) missing(event_, "loop to ask", "within a run");
  services_->withdraw(control, *caller_);
}

}  // namespace trainyard
