#include "planned.hpp"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <chrono>

#include <trainyard/batch.hpp>

namespace hfta {
namespace {

/// Shapes of batches for which plans are kept.
constexpr std::size_t most_plans = 8;

std::string shapes_text(const compiled::PlanKey& key) {
  std::string text;
  for (const auto& shape : key.inputs) text += shape_text(shape) + " ";
  return text;
}

}  // namespace

/// What autograd has of a pass: it goes back from the outputs, and puts gradients where they belong.
class Planned::Backward final : public torch::autograd::Node {
 public:
  Backward(Planned& array, Kept& of) : array_(array), of_(of) {}
  std::string name() const override { return "PlanOfMembersBackward"; }
  torch::autograd::variable_list apply(torch::autograd::variable_list&& given) override {
    if (given.front().defined()) array_.back(of_, given.front());
    return {};
  }

 private:
  Planned& array_;
  Kept& of_;
};

Planned::Planned(const Graph& one, const std::vector<std::vector<NamedTensor>>& members, at::Tensor weights,
                 at::Tensor gradients, std::span<GraphNetwork* const> own, Log log)
    : network_([&] {
        SideBySide made = side_by_side(one, members, own.front()->has_dropout());
        own_nodes_ = std::move(made.own);
        together_ = std::move(made.together);
        return std::move(made.graph);
      }()),
      weights_(std::move(weights)),
      gradients_(std::move(gradients)),
      own_(own),
      log_(std::move(log)) {}

Planned::~Planned() = default;

bool Planned::pays(const Graph& one) {
  return std::ranges::any_of(one.nodes, [](const Node& node) { return node.op == "Conv"; });
}

at::Tensor Planned::forward(const std::vector<at::Tensor>& inputs, const ForwardContext& pass) {
  Batch batch;
  batch.inputs = inputs;
  for (;;) {
    Kept& kept = kept_for(inputs, pass);
    try {
      at::Tensor outputs;
      {
        const at::NoGradGuard untracked;
        const at::Tensor rows = kept.plan->compute(batch, pass);
        const std::int64_t members = weights_.size(0);
        std::vector<std::int64_t> shape = rows.sizes().vec();
        shape.front() /= members;
        shape.insert(shape.begin(), members);
        outputs = rows.view(shape).detach();
      }
      if (!kept.key.training) return outputs;
      torch::autograd::set_history(
          outputs, std::shared_ptr<Backward>(new Backward(*this, kept), torch::autograd::deleteNode));
      return outputs;
    } catch (const compiled::OtherRows& found) {
      take_copies(found);
    }
  }
}

/// A dropout gives several rows for one: that of all members does.
void Planned::take_copies(const compiled::OtherRows& found) {
  const std::optional<SideBySide::Own>& which = own_nodes_.at(found.node);
  for (std::size_t node = 0; node < own_nodes_.size(); ++node) {
    if (!own_nodes_[node] || own_nodes_[node]->number != which.value().number) continue;
    copies_.erase(node);
    if (found.copies > 1) copies_.emplace(node, found.copies);
  }
}

std::vector<std::size_t> Planned::dropped_nodes(const ForwardContext& pass) const {
  const std::vector<std::size_t> of_member = own_.front()->dropped_nodes(pass);
  std::vector<std::size_t> found;
  for (std::size_t node = 0; node < own_nodes_.size(); ++node)
    if (own_nodes_[node] && std::ranges::binary_search(of_member, own_nodes_[node]->number))
      found.push_back(node);
  return found;
}

Planned::Kept& Planned::kept_for(const std::vector<at::Tensor>& inputs, const ForwardContext& pass) {
  compiled::PlanKey key{.training = pass.training,
                        .dropped = dropped_nodes(pass),
                        .copies = {},
                        .threads = at::get_num_threads()};
  if (!key.dropped.empty()) key.copies = copies_;
  for (const at::Tensor& input : inputs) key.inputs.push_back(input.sizes().vec());
  const auto known = std::ranges::find(kept_, key, &Kept::key);
  if (known != kept_.end()) {
    kept_.splice(kept_.begin(), kept_, known);
    return kept_.front();
  }
  if (kept_.size() == most_plans) kept_.pop_back();
  Kept made{.key = key, .plan = make(key), .gradients = {}};
  const at::NoGradGuard untracked;
  const at::Tensor all = gradients_.view({-1});
  for (const at::Tensor& parameter : made.plan->parameters())
    made.gradients.push_back(
        all.narrow(0, parameter.storage_offset() - weights_.storage_offset(), parameter.numel())
            .view(parameter.sizes()));
  made.reaches_all = made.gradients.size() == network_.parameters().size();
  kept_.push_front(std::move(made));
  return kept_.front();
}

std::shared_ptr<compiled::Plan> Planned::make(const compiled::PlanKey& key) {
  const auto start = std::chrono::steady_clock::now();
  auto plan = std::make_shared<compiled::Plan>(
      network_, key, compiled::Choices{},
      [this](std::size_t node, std::span<const at::Tensor> inputs, const ForwardContext& pass) {
        return run_node(node, inputs, pass);
      });
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  std::string text = (key.training ? "compiled for " : "compiled for evaluations of ") + shapes_text(key) +
                     "in " + std::to_string(static_cast<int>(took.count())) +
                     " ms: " + std::to_string(weights_.size(0)) + " members in " +
                     std::to_string(plan->steps()) + " steps, an arena of " +
                     std::to_string(plan->arena_bytes() >> 10) + " KiB";
  std::string names;
  for (const std::string& each : plan->by_libtorch())
    names += (names.empty() ? "; by LibTorch: " : ", ") + each;
  if (log_) log_(text + names);
  return plan;
}

/// A node that LibTorch computes: of a member, with its own dropout.
std::vector<at::Tensor> Planned::run_node(std::size_t node, std::span<const at::Tensor> inputs,
                                          const ForwardContext& pass) {
  const std::optional<SideBySide::Own>& which = own_nodes_[node];
  if (!which) return network_.run_node(node, inputs, pass);
  return own_[own_.size() == 1 ? 0 : which->member]->run_node(which->number, inputs, pass);
}

void Planned::back(Kept& of, const at::Tensor& gradient) {
  const at::NoGradGuard untracked;
  if (!adds_ && !of.reaches_all) gradients_.zero_();
  const std::vector<at::Tensor> found = of.plan->backward(gradient.flatten(0, 1));
  for (std::size_t i = 0; i < found.size(); ++i)
    adds_ ? of.gradients[i].add_(found[i]) : of.gradients[i].copy_(found[i]);
}

std::string Planned::text() const {
  std::string names;
  for (const std::string& each : together_) names += (names.empty() ? "" : ", ") + each;
  return "passes are compiled, the members side by side" +
         (names.empty() ? names : "; as one node for all: " + names);
}

}  // namespace hfta
