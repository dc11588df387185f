#include "capture.hpp"

#include <algorithm>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>

#include <trainyard/graph/graph.hpp>
#include <trainyard/helpers/sparse.hpp>
#include <trainyard/optimizer.hpp>
#include <trainyard/state.hpp>

namespace trial {
namespace {

/// Between the name of a node and the number of a tensor.
constexpr std::string_view input_of = "_input_", output_of = "_output_";
const std::string loss_name = "loss_output_0", output_name = "output_0";

}  // namespace

void Capture::begin(std::shared_ptr<Plan> plan, StepRecord head) {
  drop();
  plan_ = std::move(plan);
  if (!device_) device_ = spare_ ? std::move(spare_) : std::make_unique<DeviceStatistics>();
  record_ = std::make_shared<StepRecord>(std::move(head));
  has_gradients_ = has_output_ = false;
}

void Capture::drop() {
  reductions_.finish();
  device_.reset();
  plan_.reset();
  tensors_.clear();
}

Capture::Draft Capture::finish() {
  settle();
  if (!active()) return {};
  std::vector<std::string> missed;
  if (record_->mode == Mode::train) missed = plan_->missed();
  if (tensors_.empty()) {
    drop();
    return {.missed = std::move(missed)};
  }
  const std::shared_ptr<Plan> plan = std::exchange(plan_, nullptr);
  return {.record = std::move(record_),
          .tensors = std::exchange(tensors_, {}),
          .late = device_->any() ? std::exchange(device_, nullptr) : nullptr,
          .for_rules = plan->for_rules(),
          .missed = std::move(missed)};
}

Capture::Taken Capture::complete(Draft draft) {
  if (draft.late) {
    draft.late->results([&](std::size_t place, const Statistics& statistics) {
      TensorRecord& tensor = draft.tensors[place].first;
      tensor.statistics = statistics;
      if (statistics.count == 1) tensor.value = at::full(tensor.shape, statistics.sum, at::kDouble);
    });
    spare_ = std::move(draft.late);
  }
  std::sort(draft.tensors.begin(), draft.tensors.end(),
            [](const auto& a, const auto& b) { return a.first.name < b.first.name; });
  Taken taken{.record = draft.record, .wants = {}, .for_rules = draft.for_rules};
  for (auto& [tensor, want] : draft.tensors) {
    draft.record->tensors.push_back(std::move(tensor));
    taken.wants.push_back(std::move(want));
  }
  return taken;
}

bool Capture::take(Shown kind, const std::string& name, const at::Tensor& tensor, bool stays) {
  const Want& want = plan_->want(name);
  if (!want.any() || !tensor.defined() || tensor.is_complex() || tensor.is_quantized()) return false;
  for (Sighting* each : want.by)
    each->seen |= bit(Shown::anything) | (record_->mode == Mode::train ? bit(kind) : 0U);
  const at::Tensor plain = stored(tensor.detach());
  TensorRecord record{.name = name, .shape = plain.sizes().vec(), .statistics = {}, .value = {}};
  const bool scalar = plain.numel() == 1;
  const bool late = (want.statistics || scalar) && device_->add(tensors_.size(), plain);
  if (scalar ? !late : want.value) record.value = plain.is_cpu() ? plain.clone() : plain.cpu();
  if (want.statistics && !late && !(stays && reductions_.add(tensors_.size(), plain)))
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

void Capture::expect(Shown kind, const std::string& name) {
  for (Sighting* each : plan_->want(name).by) each->wanted |= bit(kind);
}

void Capture::expect_all(StepContext& context) {
  if (std::exchange(plan_->expects, true)) return;
  for (const Parameter& each : parameters(context)) {
    expect(Shown::weights, each.name);
    if (each.tensor.requires_grad()) expect(Shown::gradients, each.gradient);
  }
  expect(Shown::losses, loss_name);
  expect(Shown::outputs, output_name);
  if (const Graph* const graph = context.network().graph(); graph != nullptr)
    any_node_name(*graph, [&](const std::string& name) {
      expect(Shown::nodes, name);
      return false;
    });
}

void Capture::scalar(const std::string& name, const at::Tensor& value) {
  take(Shown::anything, name, value);
  device_->launch();
}

void Capture::loss(const at::Tensor& value) {
  take(Shown::losses, loss_name, value);
  device_->launch();
}

/// An executor that cuts micro-batches shows an output of each part.
void Capture::output(const at::Tensor& output) {
  if (std::exchange(has_output_, true)) return;
  take(Shown::outputs, output_name, output);
  device_->launch();
}

void Capture::inputs(const Batch& batch) {
  for (std::size_t i = 0; i < batch.inputs.size(); ++i)
    take(Shown::anything, "input_" + std::to_string(i), batch.inputs[i]);
  take(Shown::anything, "label", batch.target);
  device_->launch();
}

const std::vector<Capture::Parameter>& Capture::parameters(StepContext& context) {
  if (parameters_.empty())
    for (NamedTensor& each : context.network().parameters())
      parameters_.push_back({each.name, "gradient/" + each.name, each.tensor});
  return parameters_;
}

void Capture::weights(StepContext& context) {
  for (const Parameter& each : parameters(context)) take(Shown::weights, each.name, each.tensor, true);
  device_->launch();
}

/// As they are before clipping, without the scale that fp16 puts on them; behind it where the executor says nothing of
/// its micro-batches.
void Capture::gradients(StepContext& context, bool scaled) {
  if (std::exchange(has_gradients_, true)) return;
  const at::NoGradGuard no_grad;
  const double scale = scaled ? context.loss_scale() : 1.0;
  for (const Parameter& each : parameters(context)) {
    const at::Tensor& gradient = each.tensor.grad();
    if (!gradient.defined() || !plan_->want(each.gradient).any()) continue;
    take(Shown::gradients, each.gradient, scale == 1.0 ? gradient : at::mul(gradient.detach(), 1.0 / scale),
         true);
  }
  device_->launch();
  settle();
}

void Capture::optimizer(StepContext& context) {
  if (!plan_->optimizer) return;
  State state;
  StateWriter writer(state);
  context.optimizer().save(writer);
  bool wanted = false;
  for (const auto& [name, tensor] : state.tensors)
    wanted = take(Shown::anything, "optimizer/" + name, tensor) || wanted;
  device_->launch();
  // The first steps of an optimizer may have no state.
  if (!state.tensors.empty()) plan_->optimizer = wanted;
}

/// Visits the names of the tensors of a graph's nodes until `visit` returns true.
template <class Visit>
bool Capture::any_node_name(const Graph& graph, Visit&& visit) {
  const auto any = [&](const Node& node, const std::vector<ValueId>& ids, std::string_view kind) {
    const auto count = std::ssize(ids) - std::ranges::count(ids, no_value);
    for (std::ptrdiff_t i = 0; i < count; ++i)
      if (visit(name_.assign(node.name).append(kind).append(std::to_string(i)))) return true;
    return false;
  };
  return std::ranges::any_of(graph.nodes, [&](const Node& node) {
    return any(node, node.inputs, input_of) || any(node, node.outputs, output_of);
  });
}

/// By names: which passes are watched, which an executor may run another way, is the same where a run goes on.
void Capture::watch(Network& network) {
  if (const Graph* const graph = network.graph(); graph != nullptr && plan_->nodes)
    plan_->nodes = any_node_name(*graph, [&](const std::string& name) { return plan_->want(name).any(); });
  if (!plan_->nodes) return;
  node_wanted_ = node_seen_ = false;
  if (network.add_tap(this, [this](const NodeActivity& activity) { node(activity); }))
    watched_ = &network;
  else
    plan_->nodes = false;
}

void Capture::unwatch() {
  if (watched_ == nullptr) return;
  Network& network = *std::exchange(watched_, nullptr);
  network.remove_tap(this);
  if (plan_ && node_seen_ && network.graph() == nullptr) plan_->nodes = node_wanted_;
}

void Capture::node(const NodeActivity& activity) {
  if (!plan_) return;
  node_seen_ = true;
  const at::NoGradGuard no_grad;
  const auto each = [&](std::span<const at::Tensor> tensors, std::string_view kind) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      name_.assign(activity.node).append(kind).append(std::to_string(i));
      node_wanted_ = take(Shown::nodes, name_, tensors[i]) || node_wanted_;
    }
  };
  each(activity.inputs, input_of);
  each(activity.outputs, output_of);
  device_->launch();
}

}  // namespace trial
