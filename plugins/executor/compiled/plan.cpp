#include "plan.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

#include "loops.hpp"

namespace compiled {

Plan::Plan(trainyard::GraphNetwork& network, const PlanKey& key, const Choices& choices, RunNode run_node)
    : network_(network),
      compiler_(*network.graph(), key, choices),
      current_{network, {}, std::move(run_node)} {
  if (!current_.run_node) current_.run_node = std::bind_front(&trainyard::GraphNetwork::run_node, &network);
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
  is_cut_.resize(parameters_.size());
  for (const Compiler::Cut& cut : compiler_.cuts_) {
    if (joined_.empty() || joined_.back().number != cut.joined) joined_.push_back({cut.joined, {}, {}});
    const auto place =
        static_cast<std::size_t>(std::find(into_.begin(), into_.end(), cut.parameter) - into_.begin());
    joined_.back().parts.emplace_back(place, static_cast<std::int64_t>(cut.offset / sizeof(float)));
    is_cut_[place] = true;
  }
  cut_way_back();
  if (key.training && !key.dropped.empty())
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

Instruction& Plan::last() {
  const auto output = static_cast<std::size_t>(network_.graph()->outputs.front());
  return *compiler_.instructions_[compiler_.value(*compiler_.of_graph_[output]).maker - 1].instruction;
}

/// Each stretch but the last one makes a message of gradients whole.
void Plan::cut_way_back() {
  const auto last_use = [&](ValueNumber number) {
    return compiler_.buffer(*compiler_.value(number).gradient).last();
  };
  std::vector<int> whole_at;
  for (const ValueNumber each : into_) whole_at.push_back(last_use(each));
  for (const Joined& joined : joined_)
    for (const auto& [i, first] : joined.parts) whole_at[i] = std::max(whole_at[i], last_use(joined.number));
  Stretch order(parameters_.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return whole_at[a] < whole_at[b]; });
  const std::vector<std::size_t>& way = compiler_.backward_;
  std::size_t bytes = 0;
  for (auto begin = order.begin(), end = begin; end != order.end();) {
    const int time = whole_at[*end];
    bytes += parameters_[*end++].nbytes();
    if (end != order.end() && (bytes < compiler_.choices().message || whole_at[*end] == time)) continue;
    const auto rest = std::partition_point(
        way.begin(), way.end(), [&](std::size_t each) { return compiler_.time_back(each) <= time; });
    stretches_.emplace_back(std::exchange(begin, end), end);
    ends_.push_back(static_cast<std::size_t>(rest - way.begin()));
    bytes = 0;
  }
  if (!ends_.empty()) ends_.back() = way.size();
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

at::Tensor Plan::compute(const trainyard::Batch& batch, const trainyard::ForwardContext& context) {
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
  return result_.detach();
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

void Plan::place_gradients() {
  const auto place = [&](ValueNumber number, at::Tensor& tensor) {
    Address(compiler_, *compiler_.value(number).gradient).place(tensor.mutable_data_ptr());
  };
  for (Joined& joined : joined_) {
    for (const auto& [i, first] : joined.parts) gradients_[i].reset();
    renew(joined.gradient, compiler_.value(joined.number).dims);
    place(joined.number, joined.gradient);
    const at::Tensor flat = joined.gradient.view(-1);
    for (const auto& [i, first] : joined.parts)
      gradients_[i] = flat.narrow(0, first, parameters_[i].numel()).view(parameters_[i].sizes());
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!is_cut_[i]) renew(gradients_[i], parameters_[i].sizes());
    place(into_[i], gradients_[i]);
  }
}

void Plan::begin_way_back(const at::Tensor& gradient) {
  place_gradients();
  const at::Tensor whole = gradient.contiguous();
  const dnnl::memory into = *compiler_.gradient(output_);
  std::memcpy(into.get_data_handle(), whole.const_data_ptr(),
              static_cast<std::size_t>(whole.numel()) * sizeof(float));
}

std::vector<at::Tensor> Plan::backward(const at::Tensor& gradient) {
  std::vector<at::Tensor> found(parameters_.size());
  for (std::size_t stretch = 0; stretch < stretches_.size(); ++stretch) {
    std::vector<at::Tensor> whole = backward(stretch, gradient);
    for (std::size_t i = 0; i < whole.size(); ++i) found[stretches_[stretch][i]] = std::move(whole[i]);
  }
  return found;
}

std::vector<at::Tensor> Plan::backward(std::size_t stretch, const at::Tensor& gradient) {
  if (stretch == 0) begin_way_back(gradient);
  for (std::size_t at = stretch == 0 ? 0 : ends_[stretch - 1]; at < ends_[stretch]; ++at)
    compiler_.instructions_[compiler_.backward_[at]].instruction->backward(current_);
  if (stretch + 1 == ends_.size()) kept_inputs_.clear();
  std::vector<at::Tensor> found;
  for (const std::size_t i : stretches_[stretch]) found.push_back(gradients_[i].detach());
  return found;
}

}  // namespace compiled
