#include "device_plan.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>
#include <c10/util/strides.h>

#include <torch/csrc/autograd/autograd.h>

#include <numeric>
#include <optional>
#include <utility>

#include <trainyard/error.hpp>

namespace compiled {

using trainyard::GraphValue;
using trainyard::NamedTensor;

namespace {

std::vector<std::vector<std::int64_t>> shapes_of(const trainyard::Batch& batch) {
  std::vector<std::vector<std::int64_t>> shapes;
  for (const at::Tensor& input : batch.inputs) shapes.push_back(input.sizes().vec());
  return shapes;
}

/// Does passes that do not count: running statistics stay as they were.
template <class Work>
void without_trace(const trainyard::GraphNetwork& network, const Work& work) {
  const std::vector<NamedTensor> statistics = network.buffers();
  std::vector<at::Tensor> before;
  before.reserve(statistics.size());
  for (const NamedTensor& each : statistics) before.push_back(each.tensor.clone());
  const auto restore = [&] {
    for (std::size_t i = 0; i < before.size(); ++i) statistics[i].tensor.copy_(before[i]);
  };
  try {
    work();
  } catch (...) {
    restore();
    throw;
  }
  restore();
}

/// Where a part begins, as kernels read it fastest.
std::int64_t aligned(std::int64_t elements) {
  constexpr std::int64_t step = 64;
  return (elements + step - 1) / step * step;
}

}  // namespace

DevicePlan::DevicePlan(trainyard::GraphNetwork& network, bool fuses, Device& device,
                       const trainyard::Batch& batch, const trainyard::ForwardContext& context)
    : network_(network), nodes_(network, shapes_of(batch), fuses, device), context_(context) {
  const at::AutoGradMode untracked(false);
  bind(batch);
  device.aside([&] { without_trace(network, [&] { warm_up(); }); });
  forward_ = device.record([&] { go_forward(); }, nullptr);
  if (!parameters_.empty()) backward_ = device.record([&] { go_back(); }, forward_.get());
  output_ = output_.detach();  // its graph has been recorded
  stretches_.emplace_back(parameters_.size());
  std::iota(stretches_.front().begin(), stretches_.front().end(), 0);
}

void DevicePlan::bind(const trainyard::Batch& batch) {
  const trainyard::Graph& graph = *network_.graph();
  values_.resize(graph.values.size());
  for (std::size_t id = 0; id < graph.values.size(); ++id) {
    const GraphValue& value = graph.values[id];
    if (!value.initializer.defined()) continue;
    places_.push_back(value.initializer.const_data_ptr());
    values_[id] = value.initializer;
    if (!value.trainable) continue;
    // Leaves of its own: those of the network belong to the streams and hooks of everybody else.
    values_[id] = leaves_.emplace_back(value.initializer.variable_data());
    leaves_.back().requires_grad_();
    parameters_.push_back(value.initializer);
  }
  for (std::size_t i = 0; i < batch.inputs.size(); ++i) {
    at::Tensor& input = values_[static_cast<std::size_t>(graph.inputs[i])];
    input = at::empty_like(batch.inputs[i], at::TensorOptions(), at::MemoryFormat::Contiguous);
    inputs_.push_back(input.copy_(batch.inputs[i]));
  }
}

bool DevicePlan::fits() const {
  std::size_t next = 0;
  for (const GraphValue& value : network_.graph()->values)
    if (value.initializer.defined() && value.initializer.const_data_ptr() != places_[next++]) return false;
  return true;
}

/// Libraries choose kernels and take memory as they first compute; and it is seen which parameters get a gradient.
void DevicePlan::warm_up() {
  go_forward();
  given_ = at::zeros_like(output_, at::TensorOptions(), at::MemoryFormat::Contiguous);
  std::vector<at::Tensor> found(leaves_.size());
  if (output_.requires_grad())
    found = torch::autograd::grad({output_}, leaves_, {given_}, std::nullopt, false, /*allow_unused=*/true);
  std::vector<at::Tensor> parameters, leaves;
  std::int64_t elements = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!found[i].defined()) continue;
    if (parameters_[i].scalar_type() != parameters_.front().scalar_type())
      throw trainyard::ConfigError("parameters are of several types");
    parameters.push_back(parameters_[i]);
    leaves.push_back(leaves_[i]);
    elements += aligned(leaves_[i].numel());
  }
  parameters_ = std::move(parameters);
  leaves_ = std::move(leaves);
  if (leaves_.empty()) return;
  gradients_ = at::empty({elements}, leaves_.front().options().requires_grad(false));
  into_ = parts(gradients_);
  constexpr int passes = 2;
  for (int i = 0; i < passes; ++i) {
    go_forward();
    go_back();
  }
}

void DevicePlan::go_forward() {
  const at::AutoGradMode tracked(true);
  output_ = nodes_.run(values_, context_);
}

void DevicePlan::go_back() {
  at::_foreach_copy_(into_, torch::autograd::grad({output_}, leaves_, {given_}));
}

/// The gradients in memory as they lie in gradients_.
std::vector<at::Tensor> DevicePlan::parts(const at::Tensor& all) const {
  std::vector<at::Tensor> found;
  std::int64_t begin = 0;
  for (const at::Tensor& leaf : leaves_) {
    found.push_back(at::as_strided(all, leaf.sizes(), c10::contiguous_strides(leaf.sizes()), begin));
    begin += aligned(leaf.numel());
  }
  return found;
}

at::Tensor DevicePlan::forward(const trainyard::Batch& batch, const trainyard::ForwardContext&) {
  const at::AutoGradMode untracked(false);
  for (std::size_t i = 0; i < inputs_.size(); ++i) inputs_[i].copy_(batch.inputs[i]);
  forward_->replay();
  return track(output_.clone());
}

/// One stretch, as the way back is one recording.
std::vector<at::Tensor> DevicePlan::backward(std::size_t, const at::Tensor& gradient) {
  given_.copy_(gradient);
  backward_->replay();
  return parts(gradients_.clone());
}

}  // namespace compiled
