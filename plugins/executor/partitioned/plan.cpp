#include "plan.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <unordered_set>

#include <trainyard/error.hpp>
#include <trainyard/graph/inputs.hpp>

namespace partitioned {

using namespace trainyard;
namespace {

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

/// Another handle on the same numbers, a leaf of its own.
at::Tensor handle_of(const at::Tensor& tensor, bool tracked) {
  at::Tensor handle = tensor.variable_data();
  if (tracked) handle.set_requires_grad(true);
  return handle;
}

std::size_t at_index(ValueId id) {
  return static_cast<std::size_t>(id);
}

}  // namespace

/// Something that a segment reads and others make, or a weight of it.
struct Plan::Slot {
  ValueId value;
  at::Tensor weight;  ///< handle of the segment's own; undefined: an activation
};

struct Plan::Part {
  std::vector<std::size_t> nodes;
  std::unique_ptr<GraphNetwork> network;  ///< of its nodes; null: the network of the run runs its node
  std::size_t inputs = 0;                 ///< the first slots, in the order of that network's inputs
  std::vector<Slot> slots;
  std::vector<ValueId> outputs;  ///< that others read, or the network gives
};

/// How terms of gradients come together, for passes in which the same nodes give out what came in.
struct Plan::Way {
  struct Term {
    std::size_t part, slot;
    bool with_later = false;  ///< those behind it are in it
  };
  std::vector<ValueId> root;             ///< the value that each is, if it is an output that came in
  std::vector<std::vector<Term>> terms;  ///< by value, the last reader first
  /// By part and slot: how many terms autograd is given ahead of its own; none: they are added up afterwards.
  std::vector<std::vector<std::optional<std::size_t>>> later;
  std::unique_ptr<Schedule> schedule;
};

/// What is under way from forward to backward.
struct Plan::Pass {
  struct Taken {
    std::vector<at::Tensor> leaves;     ///< by slot; undefined: no gradient is wanted
    std::vector<at::Tensor> made;       ///< by output
    std::vector<at::Tensor> gradients;  ///< by slot
  };
  ForwardContext context;
  std::vector<at::Tensor> values;  ///< without history
  std::vector<std::uint8_t> tracked;
  std::vector<Taken> taken;  ///< by part
  at::Tensor given;          ///< gradient of the output
  Throughs throughs;
  const Way* way = nullptr;
  Clock::time_point turned;
};

/// A pass as autograd sees it: one node, whose inputs are the parameters.
class Plan::Tracked final : public torch::autograd::Node {
 public:
  Tracked(std::shared_ptr<Plan> plan, std::unique_ptr<Pass> pass)
      : plan_(std::move(plan)), pass_(std::move(pass)) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    if (at::GradMode::is_enabled())
      throw ConfigError(
          "gradients of gradients were asked for, which a step in clusters does not have: set executor.type "
          "= \"eager\"");
    if (!pass_)
      throw ConfigError("a step in clusters was gone through backward twice: set executor.type = \"eager\"");
    if (!gradients[0].defined()) return torch::autograd::variable_list(plan_->parameters_.size());
    return plan_->backward(*std::exchange(pass_, nullptr), gradients[0]);
  }
  void release_variables() override { pass_.reset(); }
  std::string name() const override { return "PartitionedStep"; }

 private:
  std::shared_ptr<Plan> plan_;
  std::unique_ptr<Pass> pass_;
};

Plan::Plan(GraphNetwork& network, Crew& crew, Setup setup)
    : network_(network),
      graph_(*network.graph()),
      crew_(crew),
      has_dropout_(network.has_dropout()),
      traced_(std::move(setup.traced)) {
  for (std::size_t id = 0; id < graph_.values.size(); ++id) {
    const GraphValue& value = graph_.values[id];
    if (!value.initializer.defined()) continue;
    tensors_.emplace_back(value.initializer, value.initializer.const_data_ptr());
    if (!value.trainable) continue;
    parameters_.push_back(value.initializer);
    parameter_values_.push_back(static_cast<ValueId>(id));
  }
  make_parts(setup);
  const std::vector<double> ranks =
      partition::ranks_of(partition::tasks_of(setup.step->passes()), setup.latency);
  std::vector<double> forward_ranks;
  std::vector<std::uint16_t> forward_workers;
  std::vector<std::size_t> of_node(graph_.nodes.size());
  maker_.assign(graph_.values.size(), parts_.size());
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    for (const ValueId id : parts_[p].outputs) maker_[at_index(id)] = p;
    for (const std::size_t node : parts_[p].nodes) of_node[node] = p;
    forward_workers.push_back(setup.segments[p].forward);
    backward_workers_.push_back(setup.segments[p].backward);
    forward_ranks.push_back(ranks[parts_[p].nodes.front()]);
    backward_ranks_.push_back(ranks[setup.step->backward_of(parts_[p].nodes.back())]);
  }
  for (const auto& [first, second] : ordered_pairs(graph_, setup.apart))
    ordered_.emplace_back(of_node[first], of_node[second]);
  std::vector<std::pair<std::size_t, std::size_t>> edges = ordered_;
  for (std::size_t p = 0; p < parts_.size(); ++p)
    for (const Slot& slot : parts_[p].slots)
      if (const std::size_t from = maker_[at_index(slot.value)]; from < parts_.size())
        edges.emplace_back(from, p);
  forward_ = std::make_unique<Schedule>(forward_workers, forward_ranks, edges, crew_.size());
}

Plan::~Plan() = default;

bool Plan::fits() const {
  return network_.graph() == &graph_ && network_.has_dropout() == has_dropout_ &&
         std::ranges::all_of(tensors_,
                             [](const auto& each) { return each.first.const_data_ptr() == each.second; });
}

void Plan::make_parts(const Setup& setup) {
  parts_.reserve(setup.segments.size());
  for (const Segment& segment : setup.segments) make_part(setup, segment);
}

void Plan::make_part(const Setup& setup, const Segment& segment) {
  Part& part = parts_.emplace_back();
  part.nodes = segment.nodes;
  Graph own;
  std::map<ValueId, ValueId> number;  // of a value in the graph of the segment
  std::vector<Slot> weights;
  const Dependences& dependences = setup.step->dependences();
  const auto is_inside = [&](std::size_t node) { return std::ranges::count(segment.nodes, node) > 0; };
  const auto take = [&](ValueId id) {
    const auto [place, is_new] = number.try_emplace(id, static_cast<ValueId>(own.values.size()));
    if (is_new) own.values.push_back(graph_.values[at_index(id)]);
    return std::pair(place->second, is_new);
  };
  for (const std::size_t i : segment.nodes) {
    Node node = graph_.nodes[i];
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      const ValueId id = node.inputs[k];
      if (id == no_value) continue;
      const auto [its, is_new] = take(id);
      node.inputs[k] = its;
      GraphValue& value = own.values[at_index(its)];
      if (!is_new) continue;
      if (value.initializer.defined()) {
        value.initializer = handle_of(value.initializer, value.trainable);
        if (value.trainable) weights.push_back({.value = id, .weight = value.initializer});
      } else if (const int maker = dependences.maker[at_index(id)];
                 maker < 0 || !is_inside(static_cast<std::size_t>(maker))) {
        own.inputs.push_back(its);
        part.slots.push_back({.value = id, .weight = {}});
      }
    }
    for (ValueId& id : node.outputs)
      if (id != no_value) id = take(id).first;
    own.nodes.push_back(std::move(node));
  }
  part.inputs = part.slots.size();
  part.slots.insert(part.slots.end(), weights.begin(), weights.end());
  for (const std::size_t i : segment.nodes)
    for (const ValueId id : graph_.nodes[i].outputs) {
      if (id == no_value) continue;
      bool is_read = id == graph_.outputs.front();
      for (std::size_t other = 0; other < graph_.nodes.size() && !is_read; ++other)
        is_read = std::ranges::count(graph_.nodes[other].inputs, id) > 0 && !is_inside(other);
      if (!is_read) continue;
      part.outputs.push_back(id);
      own.outputs.push_back(number.at(id));
    }
  // A segment whose values nobody reads runs all the same: its running statistics are of the network.
  if (own.outputs.empty()) {
    const ValueId id = graph_.nodes[segment.nodes.back()].outputs.front();
    part.outputs.push_back(id);
    own.outputs.push_back(number.at(id));
  }
  if (!setup.apart[segment.nodes.front()]) part.network = std::make_unique<GraphNetwork>(std::move(own));
}

/// Returns the way back of a pass, which is made where there was none such yet.
const Plan::Way& Plan::way_back(const Throughs& throughs) {
  std::unique_ptr<Way>& way = ways_[throughs];
  if (way) return *way;
  auto made = std::make_unique<Way>();
  find_roots(*made, throughs);
  order_terms(*made, throughs);
  make_schedule(*made);
  way = std::move(made);
  return *way;
}

void Plan::find_roots(Way& way, const Throughs& throughs) const {
  for (std::size_t id = 0; id < graph_.values.size(); ++id) way.root.push_back(static_cast<ValueId>(id));
  for (std::size_t p = 0; p < parts_.size(); ++p)
    for (std::size_t o = 0; o < throughs[p].size(); ++o)
      if (throughs[p][o] > 0)
        way.root[at_index(parts_[p].outputs[o])] =
            way.root[at_index(parts_[p].slots[throughs[p][o] - 1].value)];
}

/// Returns the node, and the number of its input, whose operators read a slot; none where it only goes through.
std::optional<std::pair<std::size_t, std::size_t>> Plan::reader_of(const Part& part, std::size_t slot) const {
  std::set<ValueId> same = {part.slots[slot].value};
  for (const std::size_t node : part.nodes) {
    const std::vector<ValueId>& inputs = graph_.nodes[node].inputs;
    const auto read = std::ranges::find_if(inputs, [&](ValueId id) { return same.count(id) > 0; });
    if (read == inputs.end()) continue;
    if (!traced_ || part.nodes.size() == 1 || !traced_->through[node])
      return std::pair(node, static_cast<std::size_t>(read - inputs.begin()));
    same.insert(graph_.nodes[node].outputs.front());
  }
  return std::nullopt;
}

bool Plan::reads_once(std::size_t node, std::size_t input) const {
  return traced_ && traced_->reads[node][input] == 1;
}

void Plan::order_terms(Way& way, const Throughs& throughs) const {
  way.terms.resize(graph_.values.size());
  std::map<std::pair<std::size_t, std::size_t>, std::pair<std::size_t, std::size_t>> readers;
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    way.later.emplace_back(parts_[p].slots.size());
    for (std::size_t s = 0; s < parts_[p].slots.size(); ++s) {
      const bool goes_through = std::ranges::count(throughs[p], static_cast<std::uint32_t>(s + 1)) >
                                0;  // and nothing else comes of it
      const auto reader = goes_through ? std::nullopt : reader_of(parts_[p], s);
      if (!reader) continue;
      readers[{p, s}] = *reader;
      way.terms[at_index(way.root[at_index(parts_[p].slots[s].value)])].push_back({p, s});
    }
  }
  for (std::vector<Way::Term>& terms : way.terms) {
    std::ranges::stable_sort(terms, [&](const Way::Term& a, const Way::Term& b) {
      return readers.at({a.part, a.slot}).first > readers.at({b.part, b.slot}).first;
    });
    // The last reader's term is the first. Of the output it is the loss's: what else reads that, no gradient comes through.
    for (std::size_t t = 1; t < terms.size(); ++t) {
      const auto [node, input] = readers.at({terms[t].part, terms[t].slot});
      if (reads_once(node, input)) continue;
      terms[t].with_later = true;
      way.later[terms[t].part][terms[t].slot] = t;
    }
  }
}

void Plan::make_schedule(Way& way) const {
  std::vector<std::pair<std::size_t, std::size_t>> edges;
  for (std::size_t p = 0; p < parts_.size(); ++p)
    for (std::size_t s = 0; s < parts_[p].slots.size(); ++s) {
      const std::size_t root = at_index(way.root[at_index(parts_[p].slots[s].value)]);
      if (maker_[root] < parts_.size()) edges.emplace_back(p, maker_[root]);
      for (std::size_t t = 0; t < way.later[p][s].value_or(0); ++t)
        edges.emplace_back(way.terms[root][t].part, p);
    }
  for (const auto& [first, second] : ordered_) edges.emplace_back(second, first);
  way.schedule = std::make_unique<Schedule>(backward_workers_, backward_ranks_, edges, crew_.size());
}

at::Tensor Plan::forward(const Batch& batch, const ForwardContext& context) {
  check_inputs(graph_, batch.inputs);
  auto pass = std::make_unique<Pass>();
  pass->context = context;
  pass->values.resize(graph_.values.size());
  pass->tracked.resize(graph_.values.size(), 0);
  pass->taken.resize(parts_.size());
  pass->throughs.resize(parts_.size());
  for (std::size_t i = 0; i < batch.inputs.size(); ++i)
    pass->values[at_index(graph_.inputs[i])] = batch.inputs[i];
  crew_.run(*forward_, [&](std::size_t part, std::size_t) { run_forward(*pass, part); });
  const std::size_t id = at_index(graph_.outputs.front());
  at::Tensor output = pass->values[id].variable_data();
  if (pass->tracked[id] == 0) return output;
  pass->way = &way_back(pass->throughs);
  if (measures_) pass->turned = Clock::now();
  const std::shared_ptr<torch::autograd::Node> node(new Tracked(shared_from_this(), std::move(pass)),
                                                    torch::autograd::deleteNode);
  torch::autograd::edge_list edges;
  for (const at::Tensor& parameter : parameters_)
    edges.push_back(torch::autograd::impl::gradient_edge(parameter));
  node->set_next_edges(std::move(edges));
  torch::autograd::set_history(output, node);
  return output;
}

void Plan::run_forward(Pass& pass, std::size_t number) {
  const at::AutoGradMode tracks(true);
  const Part& part = parts_[number];
  Pass::Taken& taken = pass.taken[number];
  const auto begin = measures_ ? Clock::now() : Clock::time_point();
  std::vector<at::Tensor> inputs;
  for (std::size_t s = 0; s < part.slots.size(); ++s) {
    const Slot& slot = part.slots[s];
    if (slot.weight.defined()) {
      taken.leaves.push_back(slot.weight);
      continue;
    }
    const bool tracked = pass.tracked[at_index(slot.value)] != 0;
    inputs.push_back(tracked ? handle_of(pass.values[at_index(slot.value)], true)
                             : pass.values[at_index(slot.value)]);
    taken.leaves.push_back(tracked ? inputs.back() : at::Tensor());
  }
  if (part.network) {
    taken.made = part.network->forward_all(inputs, pass.context);
  } else {
    const Node& node = graph_.nodes[part.nodes.front()];
    std::map<ValueId, at::Tensor> given;
    for (std::size_t s = 0; s < part.slots.size(); ++s)
      given[part.slots[s].value] = s < part.inputs ? inputs[s] : part.slots[s].weight;
    std::vector<at::Tensor> all;
    for (const ValueId id : node.inputs) {
      at::Tensor& input = all.emplace_back();
      if (id == no_value) continue;
      const auto known = given.find(id);
      input = known != given.end() ? known->second : graph_.values[at_index(id)].initializer;
    }
    const std::vector<at::Tensor> made = network_.run_node(part.nodes.front(), all, pass.context);
    for (const ValueId id : part.outputs)
      taken.made.push_back(
          made[static_cast<std::size_t>(std::ranges::find(node.outputs, id) - node.outputs.begin())]);
  }
  for (std::size_t o = 0; o < part.outputs.size(); ++o) {
    const std::size_t id = at_index(part.outputs[o]);
    pass.values[id] = taken.made[o].variable_data();
    pass.tracked[id] = taken.made[o].requires_grad() ? 1 : 0;
    const auto same = std::ranges::find_if(
        taken.leaves, [&](const at::Tensor& leaf) { return leaf.defined() && leaf.is_same(taken.made[o]); });
    pass.throughs[number].push_back(
        same == taken.leaves.end() ? 0 : static_cast<std::uint32_t>(same - taken.leaves.begin() + 1));
  }
  if (!measures_) return;
  forward_times_[number] = std::min(forward_times_[number], microseconds_since(begin));
  learn(pass, number);
}

/// Adds the terms of a gradient that are there, from the first on.
at::Tensor Plan::sum(const Pass& pass, ValueId value, std::size_t terms) const {
  at::Tensor total;
  bool is_own = false;  // nobody else has it
  if (value == pass.way->root[at_index(graph_.outputs.front())]) total = pass.given;
  for (std::size_t t = 0; t < terms; ++t) {
    const Way::Term& term = pass.way->terms[at_index(value)][t];
    const at::Tensor& gradient = pass.taken[term.part].gradients[term.slot];
    if (!gradient.defined()) continue;
    if (term.with_later || !total.defined()) {
      total = gradient;
      is_own = false;
    } else if (is_own && !total.is_sparse() && !gradient.is_sparse()) {
      total.add_(gradient);
    } else {
      total = total.is_sparse() ? at::add(gradient, total) : at::add(total, gradient);
      is_own = true;
    }
  }
  return total;
}

void Plan::run_backward(Pass& pass, std::size_t number) {
  const at::AutoGradMode untracked(false);
  const Part& part = parts_[number];
  Pass::Taken& taken = pass.taken[number];
  const auto begin = measures_ ? Clock::now() : Clock::time_point();
  taken.gradients.resize(part.slots.size());
  std::vector<at::Tensor> roots, given, wanted;
  std::vector<std::size_t> slots;
  for (std::size_t o = 0; o < part.outputs.size(); ++o) {
    if (!taken.made[o].requires_grad() || pass.throughs[number][o] > 0) continue;
    const std::vector<Way::Term>& terms = pass.way->terms[at_index(part.outputs[o])];
    const at::Tensor gradient = sum(pass, part.outputs[o], terms.size());
    for (const Way::Term& term : terms)
      pass.taken[term.part].gradients[term.slot].reset();  // nobody else reads it
    if (!gradient.defined()) continue;
    roots.push_back(taken.made[o]);
    given.push_back(gradient);
  }
  const bool is_reached = !roots.empty();
  for (std::size_t s = 0; s < part.slots.size(); ++s) {
    if (!taken.leaves[s].defined()) continue;
    const std::optional<std::size_t> ahead = pass.way->later[number][s];
    at::Tensor later =
        ahead ? sum(pass, pass.way->root[at_index(part.slots[s].value)], *ahead) : at::Tensor();
    if (!is_reached) {
      taken.gradients[s] = std::move(later);
      continue;
    }
    wanted.push_back(taken.leaves[s]);
    slots.push_back(s);
    if (!later.defined()) continue;
    roots.push_back(taken.leaves[s]);
    given.push_back(std::move(later));
  }
  if (!wanted.empty()) {
    const std::vector<at::Tensor> found =
        torch::autograd::grad(roots, wanted, given, /*retain_graph=*/false, /*create_graph=*/false,
                              /*allow_unused=*/true);
    for (std::size_t i = 0; i < slots.size(); ++i) taken.gradients[slots[i]] = found[i];
  }
  taken.leaves.clear();
  taken.made.clear();
  if (measures_ && is_reached)
    backward_times_[number] = std::min(backward_times_[number], microseconds_since(begin));
}

std::vector<at::Tensor> Plan::backward(Pass& pass, const at::Tensor& gradient) {
  if (measures_) loss_time_ = std::min(loss_time_, microseconds_since(pass.turned));
  pass.given = gradient;
  crew_.run(*pass.way->schedule, [&](std::size_t part, std::size_t) { run_backward(pass, part); });
  std::vector<at::Tensor> found;
  for (const ValueId id : parameter_values_)
    found.push_back(sum(pass, id, pass.way->terms[at_index(id)].size()));
  return found;
}

void Plan::measure() {
  measures_ = true;
  constexpr double none = std::numeric_limits<double>::infinity();
  forward_times_.assign(parts_.size(), none);
  backward_times_.assign(parts_.size(), none);
  loss_time_ = none;
  counted_ = {{}, std::vector<bool>(graph_.nodes.size(), false)};
  for (const Node& node : graph_.nodes) counted_.reads.emplace_back(node.inputs.size(), 0);
}

/// Counts the edges of autograd's graph that lead to each leaf of a node.
void Plan::learn(const Pass& pass, std::size_t number) {
  const Part& part = parts_[number];
  const Pass::Taken& taken = pass.taken[number];
  const std::size_t node = part.nodes.front();
  for (const std::uint32_t slot : pass.throughs[number])
    if (slot > 0) counted_.through[node] = true;
  std::map<const torch::autograd::Node*, std::uint32_t> edges;
  std::vector<torch::autograd::Edge> leaves(
      taken.leaves.size());  // which keep their ends from being made anew
  for (std::size_t s = 0; s < leaves.size(); ++s) {
    if (!taken.leaves[s].defined()) continue;
    leaves[s] = torch::autograd::impl::gradient_edge(taken.leaves[s]);
    edges.emplace(leaves[s].function.get(), 0);
  }
  std::unordered_set<const torch::autograd::Node*> known;
  std::vector<const torch::autograd::Node*> left;
  const auto reach = [&](const torch::autograd::Node* each) {
    if (each != nullptr && known.insert(each).second) left.push_back(each);
  };
  for (const at::Tensor& made : taken.made)
    if (made.grad_fn()) reach(made.grad_fn().get());
  while (!left.empty()) {
    const torch::autograd::Node* const each = left.back();
    left.pop_back();
    for (const torch::autograd::Edge& edge : each->next_edges()) {
      if (const auto leaf = edges.find(edge.function.get()); leaf != edges.end()) ++leaf->second;
      reach(edge.function.get());
    }
  }
  const std::vector<ValueId>& inputs = graph_.nodes[node].inputs;
  for (std::size_t s = 0; s < leaves.size(); ++s) {
    if (!leaves[s].function) continue;
    const auto input = std::ranges::find(inputs, part.slots[s].value) - inputs.begin();
    counted_.reads[node][static_cast<std::size_t>(input)] = edges.at(leaves[s].function.get());
  }
}

}  // namespace partitioned
