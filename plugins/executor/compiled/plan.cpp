#include "plan.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <cstring>
#include <utility>

#include <trainyard/error.hpp>

#include "loops.hpp"

namespace compiled {

/// What autograd has of a pass.
class Plan::Node final : public torch::autograd::Node {
 public:
  Node(std::shared_ptr<Plan> plan, std::shared_ptr<int> pass)
      : plan_(std::move(plan)), pass_(std::move(pass)) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    if (at::GradMode::is_enabled())
      throw trainyard::ConfigError(
          "gradients of gradients were asked for, which a compiled step does not have: set executor.type = "
          "\"eager\"");
    if (!pass_)
      throw trainyard::ConfigError(
          "a compiled step was gone through backward twice: set executor.type = \"eager\"");
    torch::autograd::variable_list found(plan_->parameters_.size());
    if (gradients[0].defined()) found = plan_->backward(gradients[0]);
    pass_.reset();
    return found;
  }
  void release_variables() override { pass_.reset(); }
  std::string name() const override { return "CompiledStep"; }

 private:
  std::shared_ptr<Plan> plan_;
  std::shared_ptr<int> pass_;
};

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
    if (value.trainable && compiler_.has_gradient(its)) parameters_.emplace_back(value.initializer, its);
  }
  gradients_.resize(parameters_.size());

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
  const Place place = compiler_.place(output_);
  if (hands_out_) place.place(result_.mutable_data_ptr());
  for (const Compiler::Entry& entry : compiler_.instructions_) entry.instruction->forward(current_);

  if (!hands_out_)
    std::memcpy(result_.mutable_data_ptr(), place.data(),
                static_cast<std::size_t>(result_.numel()) * sizeof(float));
  at::Tensor output = result_.detach();
  if (parameters_.empty()) return output;
  auto token = std::make_shared<int>(0);
  pass_ = token;
  const std::shared_ptr<Node> node(new Node(shared_from_this(), std::move(token)),
                                   torch::autograd::deleteNode);
  if (edges_.empty())
    for (const auto& [parameter, number] : parameters_)
      edges_.push_back(torch::autograd::impl::gradient_edge(parameter));
  node->set_next_edges(torch::autograd::edge_list(edges_));
  torch::autograd::set_history(output, node);
  return output;
}

std::vector<at::Tensor> Plan::backward(const at::Tensor& gradient) {
  const at::Tensor whole = gradient.contiguous();
  const dnnl::memory into = *compiler_.gradient(output_);
  std::memcpy(into.get_data_handle(), whole.const_data_ptr(),
              static_cast<std::size_t>(whole.numel()) * sizeof(float));
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [parameter, number] = parameters_[i];
    renew(gradients_[i], parameter.sizes());
    Place(compiler_, *compiler_.value(number).gradient).place(gradients_[i].mutable_data_ptr());
  }
  for (const std::size_t i : compiler_.backward_) compiler_.instructions_[i].instruction->backward(current_);
  kept_inputs_.clear();
  std::vector<at::Tensor> found;
  for (const at::Tensor& each : gradients_) found.push_back(each.detach());
  return found;
}

}  // namespace compiled
