#include "fused_nodes.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <map>
#include <utility>

#include "chain_source.hpp"

namespace compiled {

using trainyard::no_value;
using trainyard::Node;
using trainyard::ValueId;

namespace {

/// Puts a kernel of a chain on the stream, its constants behind the operands.
void launch(const FusedChain& chain, const char* way, const std::vector<at::Tensor>& operands,
            const std::vector<at::Tensor>& constants) {
  std::vector<void*> pointers;
  for (const auto* list : {&operands, &constants})
    for (const at::Tensor& each : *list) pointers.push_back(const_cast<void*>(each.const_data_ptr()));
  chain.kernels->launch(chain.name + way, operands.front().numel(), pointers);
}

at::Tensor like(const at::Tensor& other) {
  return at::empty_like(other, at::TensorOptions(), at::MemoryFormat::Contiguous);
}

/// The way back through a chain.
class ChainNode final : public torch::autograd::Node {
 public:
  ChainNode(std::shared_ptr<const FusedChain> chain, std::vector<at::Tensor> inputs,
            std::vector<at::Tensor> constants)
      : chain_(std::move(chain)), inputs_(std::move(inputs)), constants_(std::move(constants)) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    torch::autograd::variable_list found(num_outputs());
    if (!gradients[0].defined()) return found;
    for (at::Tensor& each : found) each = like(inputs_.front());
    std::vector<at::Tensor> operands = inputs_;
    operands.push_back(gradients[0].contiguous());
    operands.insert(operands.end(), found.begin(), found.end());
    launch(*chain_, "_backward", operands, constants_);
    return found;
  }
  void release_variables() override { inputs_.clear(); }
  std::string name() const override { return "CompiledChain"; }

 private:
  std::shared_ptr<const FusedChain> chain_;
  std::vector<at::Tensor> inputs_, constants_;
};

at::Tensor run_chain(const std::shared_ptr<const FusedChain>& chain, const std::vector<at::Tensor>& values) {
  const Collected& nodes = chain->nodes;
  std::vector<at::Tensor> operands, constants;
  torch::autograd::edge_list edges;
  for (std::size_t i = 0; i < nodes.inputs.size(); ++i) {
    const at::Tensor& input = values[static_cast<std::size_t>(nodes.inputs[i])];
    if (nodes.formula[i].wants_gradient) edges.push_back(torch::autograd::impl::gradient_edge(input));
    operands.push_back(input.detach().contiguous());
  }
  for (const ValueId each : nodes.constants) constants.push_back(values[static_cast<std::size_t>(each)]);
  const at::AutoGradMode untracked(false);
  std::vector<at::Tensor> all = operands;
  at::Tensor output = all.emplace_back(like(operands.front()));
  launch(*chain, "_forward", all, constants);
  if (edges.empty()) return output;
  const std::shared_ptr<torch::autograd::Node> node(
      new ChainNode(chain, std::move(operands), std::move(constants)), torch::autograd::deleteNode);
  node->set_next_edges(std::move(edges));
  torch::autograd::set_history(output, node);
  return output;
}

/// Both kernels of a formula, with names that begin so.
std::string text_of(const Formula& formula, const std::string& name) {
  const auto inputs = static_cast<std::size_t>(
      std::count_if(formula.begin(), formula.end(), [](const Term& each) { return !each.op; }));
  const auto wanting = static_cast<std::size_t>(
      std::count_if(formula.begin(), formula.end(), [](const Term& each) { return each.wants_gradient; }));
  std::string text = chain_kernel_text(name + "_forward", forward_program(formula), inputs + 1);
  if (wanting > 0)
    text += chain_kernel_text(name + "_backward", backward_program(formula), inputs + 1 + wanting);
  return text;
}

/// The kernels of chains, one text for formulas that are the same.
class Texts {
 public:
  /// The name of the formula's.
  std::string add(const Formula& formula) {
    const auto [known, is_new] =
        names_.try_emplace(text_of(formula, ""), "chain" + std::to_string(names_.size()));
    if (is_new) all_ += text_of(formula, known->second);
    return known->second;
  }
  const std::string& all() const { return all_; }

 private:
  std::map<std::string, std::string> names_;
  std::string all_;
};

}  // namespace

FusedNodes::FusedNodes(trainyard::GraphNetwork& network, const std::vector<std::vector<std::int64_t>>& inputs,
                       bool fuses, Device& device)
    : Progress(*network.graph(), inputs),
      network_(network),
      made_(graph().values.size()),
      wants_(graph().values.size()) {
  for (std::size_t id = 0; id < graph().values.size(); ++id) {
    made_[id] = graph().values[id].initializer.defined();
    wants_[id] = graph().values[id].trainable;
  }
  for (const ValueId id : graph().inputs) made_[static_cast<std::size_t>(id)] = true;
  Texts texts;
  for (std::size_t n = 0; n < graph().nodes.size(); ++n) {
    if (is_taken(n)) continue;
    std::shared_ptr<FusedChain> chain = fuses ? collect(n) : nullptr;
    if (chain) chain->name = texts.add(chain->nodes.formula);
    steps_.push_back({n, std::move(chain), {}});
    bool wants_gradient = false;
    for (const ValueId id : read_by(steps_.back())) wants_gradient |= wants_gradient_of(id);
    make(steps_.back().chain ? steps_.back().chain->nodes.nodes.back() : n, wants_gradient);
  }
  plan_releases();
  if (texts.all().empty()) return;
  const std::shared_ptr<const Kernels> kernels = device.kernels(chain_functions() + texts.all());
  for (const Step& step : steps_)
    if (step.chain) step.chain->kernels = kernels;
}

bool FusedNodes::has_floats(ValueId id) const {
  return made_[static_cast<std::size_t>(id)] &&
         graph().values[static_cast<std::size_t>(id)].dtype == at::kFloat;
}

/// A chain from that node on, of at least two nodes: LibTorch has a kernel for one.
std::shared_ptr<FusedChain> FusedNodes::collect(std::size_t node) {
  if (graph().nodes[node].outputs.size() != 1) return nullptr;
  Collected found = collect_chain(*this, node);
  if (found.nodes.size() < 2) return nullptr;
  for (const std::size_t n : found.nodes) take(n);
  return std::make_shared<FusedChain>(FusedChain{.nodes = std::move(found)});
}

void FusedNodes::make(std::size_t node, bool wants_gradient) {
  for (const ValueId id : graph().nodes[node].outputs) {
    if (id == no_value) continue;
    made_[static_cast<std::size_t>(id)] = true;
    wants_[static_cast<std::size_t>(id)] =
        wants_gradient && graph().values[static_cast<std::size_t>(id)].dtype == at::kFloat;
  }
}

std::vector<ValueId> FusedNodes::read_by(const Step& step) const {
  std::vector<ValueId> read = step.chain ? step.chain->nodes.inputs : graph().nodes[step.node].inputs;
  std::erase(read, no_value);
  return read;
}

void FusedNodes::plan_releases() {
  std::vector<bool> is_needed(graph().values.size());
  for (const ValueId id : graph().outputs) is_needed[static_cast<std::size_t>(id)] = true;
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step)
    for (const ValueId id : read_by(*step)) {
      if (is_needed[static_cast<std::size_t>(id)]) continue;
      is_needed[static_cast<std::size_t>(id)] = true;
      step->release.push_back(id);
    }
}

at::Tensor FusedNodes::run(std::vector<at::Tensor> values, const trainyard::ForwardContext& context) const {
  const auto value = [&](ValueId id) -> at::Tensor& { return values[static_cast<std::size_t>(id)]; };
  for (const Step& step : steps_) {
    const Node& node = graph().nodes[step.node];
    if (step.chain) {
      value(graph().nodes[step.chain->nodes.nodes.back()].outputs[0]) = run_chain(step.chain, values);
    } else {
      std::vector<at::Tensor> inputs;
      for (const ValueId id : node.inputs) inputs.push_back(id == no_value ? at::Tensor() : value(id));
      const std::vector<at::Tensor> outputs = network_.run_node(step.node, inputs, context);
      for (std::size_t i = 0; i < outputs.size(); ++i)
        if (node.outputs[i] != no_value) value(node.outputs[i]) = outputs[i];
    }
    for (const ValueId id : step.release) value(id).reset();
  }
  return value(graph().outputs.front());
}

}  // namespace compiled
