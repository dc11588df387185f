#include "plan.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "loops.hpp"

namespace compiled {

Plan::Plan(trainyard::GraphNetwork& network, const PlanKey& key, const Choices& choices)
    : network_(network), compiler_(*network.graph(), key, choices), current_{network, {}} {
  const trainyard::Graph& graph = *network.graph();
  const auto number = [&](trainyard::ValueId id) {
    return *compiler_.of_graph_[static_cast<std::size_t>(id)];
  };
  output_ = compiler_.in_plain(number(graph.outputs.front()));
  for (const trainyard::ValueId id : graph.inputs) inputs_.push_back(number(id));
  compiler_.memory(output_);
  const View view = compiler_.value(output_).view;
  const int end_of_forward = compiler_.buffer(view).last();
  compiler_.plan_backward(output_);
  Buffer& buffer = compiler_.buffer(view);
  hands_out_ = !buffer.outside() && buffer.last() == end_of_forward;
  hands_out_ ? buffer.go_outside() : buffer.use(compiler_.now());
  for (std::size_t id = 0; id < graph.values.size(); ++id) {
    const trainyard::GraphValue& value = graph.values[id];
    if (!value.initializer.defined()) continue;
    const ValueNumber its = number(static_cast<trainyard::ValueId>(id));
    initializers_.emplace_back(id, its);
    if (!value.trainable || !compiler_.has_gradient(its)) continue;
    parameters_.push_back(value.initializer);
    into_.push_back(its);
  }
  gradients_.resize(parameters_.size());
  if (key.training && key.has_dropout)
    for (const trainyard::Node& node : graph.nodes)
      if (node.op == "BatchNormalization")
        for (const std::size_t input : {3, 4}) {
          const auto id = static_cast<std::size_t>(node.inputs[input]);
          if (graph.values[id].initializer.defined()) statistics_.push_back(id);
        }
  kept_.resize(statistics_.size());

  std::vector<std::size_t> offsets;
  arena_bytes_ = lay_out(compiler_.buffers_, offsets);
  arena_.emplace(arena_bytes_);
  for (std::size_t i = 0; i < offsets.size(); ++i)
    if (!compiler_.buffers_[i].outside()) compiler_.buffers_[i].place(arena_->data() + offsets[i]);
}

void Plan::bind_parameters() {
  const trainyard::Graph& graph = *network_.graph();
  for (const auto& [id, number] : initializers_)
    compiler_.place(number).place(const_cast<void*>(graph.values[id].initializer.const_data_ptr()));
}

namespace {

/// A tensor of ours that nobody else has any more, or a new one.
void renew(at::Tensor& tensor, at::IntArrayRef sizes) {
  if (tensor.defined() && tensor.storage().use_count() == 1) return;
  tensor = at::empty(sizes, at::kFloat);
}

}  // namespace

at::Tensor Plan::forward(const trainyard::Batch& batch, const trainyard::ForwardContext& context) {
  const at::AutoGradMode untracked(false);
  bind_parameters();
  std::vector<at::Tensor> inputs;
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    inputs.push_back(batch.inputs[i].contiguous());
    compiler_.place(inputs_[i]).place(const_cast<void*>(inputs.back().const_data_ptr()));
  }
  kept_inputs_ = std::move(inputs);
  current_.context = context;
  const Value& value = compiler_.value(output_);
  renew(result_, value.dims);
  const Address place = compiler_.place(output_);
  if (hands_out_) place.place(result_.mutable_data_ptr());
  run_forward();

  if (!hands_out_)
    std::memcpy(result_.mutable_data_ptr(), place.data(),
                static_cast<std::size_t>(result_.numel()) * sizeof(float));
  return track(result_.detach());
}

void Plan::run_forward() {
  const auto running = [&](std::size_t i) -> at::Tensor {
    return network_.graph()->values[statistics_[i]].initializer;
  };
  for (std::size_t i = 0; i < statistics_.size(); ++i) {
    const at::Tensor now = running(i);
    kept_[i].assign(now.const_data_ptr<float>(), now.const_data_ptr<float>() + now.numel());
  }
  try {
    for (const Compiler::Entry& entry : compiler_.instructions_) entry.instruction->forward(current_);
  } catch (const OtherRows&) {
    for (std::size_t i = 0; i < statistics_.size(); ++i)
      std::copy(kept_[i].begin(), kept_[i].end(), running(i).mutable_data_ptr<float>());
    throw;
  }
}

std::vector<at::Tensor> Plan::backward(const at::Tensor& gradient) {
  const at::Tensor whole = gradient.contiguous();
  const dnnl::memory into = *compiler_.gradient(output_);
  std::memcpy(into.get_data_handle(), whole.const_data_ptr(),
              static_cast<std::size_t>(whole.numel()) * sizeof(float));
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    renew(gradients_[i], parameters_[i].sizes());
    Address(compiler_, *compiler_.value(into_[i]).gradient).place(gradients_[i].mutable_data_ptr());
  }
  for (const std::size_t i : compiler_.backward_) compiler_.instructions_[i].instruction->backward(current_);
  kept_inputs_.clear();
  std::vector<at::Tensor> found;
  for (const at::Tensor& each : gradients_) found.push_back(each.detach());
  return found;
}

}  // namespace compiled
