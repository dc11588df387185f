#include "capture.hpp"

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>

#include <trainyard/optimizer.hpp>
#include <trainyard/state.hpp>

namespace trainyard::recorder {

void Capture::begin(std::shared_ptr<Plan> plan, StepRecord head) {
  drop();
  plan_ = std::move(plan);
  record_ = std::make_shared<StepRecord>(std::move(head));
}

void Capture::drop() {
  reductions_.finish();
  plan_.reset();
  tensors_.clear();
}

Capture::Taken Capture::finish() {
  settle();
  Taken taken;
  const std::shared_ptr<Plan> plan = std::exchange(plan_, nullptr);
  if (plan == nullptr || tensors_.empty()) return taken;
  std::sort(tensors_.begin(), tensors_.end(),
            [](const auto& a, const auto& b) { return a.first.name < b.first.name; });
  for (auto& [tensor, want] : tensors_) {
    record_->tensors.push_back(std::move(tensor));
    taken.wants.push_back(std::move(want));
  }
  tensors_.clear();
  taken.record = std::move(record_);
  taken.for_rules = plan->for_rules();
  return taken;
}

bool Capture::take(const std::string& name, const at::Tensor& tensor, bool stays) {
  const Want& want = plan_->want(name);
  if (!want.any() || !tensor.defined() || tensor.is_complex() || tensor.is_quantized()) return false;
  const at::Tensor plain = tensor.detach();
  TensorRecord record{.name = name, .shape = plain.sizes().vec(), .statistics = {}, .value = {}};
  const bool scalar = plain.numel() == 1;
  if (want.value || scalar) record.value = plain.is_cpu() ? plain.clone() : plain.cpu();
  if (want.statistics && !(stays && reductions_.add(tensors_.size(), plain)))
    record.statistics = statistics(record.value.defined() ? record.value : plain);
  tensors_.emplace_back(std::move(record), want);
  return true;
}

void Capture::settle() {
  for (const Reductions::Part& part : reductions_.finish()) {
    std::optional<Statistics>& all = tensors_[part.tensor].first.statistics;
    if (!all) all.emplace();
    all->append(part.statistics);
  }
}

void Capture::number(const std::string& name, double value) {
  if (plan_->want(name).any()) take(name, at::full({}, value, at::kDouble));
}

void Capture::inputs(const Batch& batch) {
  for (std::size_t i = 0; i < batch.inputs.size(); ++i) take("input_" + std::to_string(i), batch.inputs[i]);
  take("label", batch.target);
}

const std::vector<Capture::Parameter>& Capture::parameters(StepContext& context) {
  if (parameters_.empty())
    for (NamedTensor& each : context.network().parameters())
      parameters_.push_back({each.name, "gradient/" + each.name, each.tensor});
  return parameters_;
}

void Capture::weights(StepContext& context) {
  for (const Parameter& each : parameters(context)) take(each.name, each.tensor, true);
}

/// As they are before clipping, without the scale that fp16 puts on them.
void Capture::gradients(StepContext& context) {
  const at::NoGradGuard no_grad;
  const double scale = context.loss_scale();
  for (const Parameter& each : parameters(context)) {
    const at::Tensor& gradient = each.tensor.grad();
    if (!gradient.defined() || !plan_->want(each.gradient).any()) continue;
    take(each.gradient, scale == 1.0 ? gradient : at::mul(gradient.detach(), 1.0 / scale), true);
  }
  settle();
}

void Capture::optimizer(StepContext& context) {
  if (!plan_->optimizer) return;
  State state;
  StateWriter writer(state);
  context.optimizer().save(writer);
  bool wanted = false;
  for (const auto& [name, tensor] : state.tensors) wanted = take("optimizer/" + name, tensor) || wanted;
  // The first steps of an optimizer may have no state.
  if (!state.tensors.empty()) plan_->optimizer = wanted;
}

void Capture::watch(Network& network) {
  if (!plan_->nodes) return;
  node_wanted_ = node_seen_ = false;
  if (network.set_tap([this](const NodeActivity& activity) { node(activity); }))
    watched_ = &network;
  else
    plan_->nodes = false;
}

void Capture::unwatch() {
  if (watched_ == nullptr) return;
  watched_->set_tap({});
  watched_ = nullptr;
  if (plan_ && node_seen_) plan_->nodes = node_wanted_;
}

void Capture::node(const NodeActivity& activity) {
  if (!plan_) return;
  node_seen_ = true;
  const at::NoGradGuard no_grad;
  const auto each = [&](std::span<const at::Tensor> tensors, std::string_view kind) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      name_.assign(activity.node).append(kind).append(std::to_string(i));
      node_wanted_ = take(name_, tensors[i]) || node_wanted_;
    }
  };
  each(activity.inputs, "_input_");
  each(activity.outputs, "_output_");
}

}  // namespace trainyard::recorder
