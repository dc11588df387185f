#include <trainyard/helpers/slot_optimizer.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <sstream>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros.h>

#include <trainyard/error.hpp>
#include <trainyard/state.hpp>

namespace trainyard {
namespace {

void check_loaded(const std::string& name, const StateReader& state, const at::Tensor& own) {
  const at::Tensor& saved = state.tensor(name);
  if (saved.sizes() == own.sizes() && saved.scalar_type() == own.scalar_type()) return;
  std::ostringstream text;
  text << "state \"" << name << "\" is " << c10::toString(saved.scalar_type()) << saved.sizes()
       << ", but the parameter needs " << c10::toString(own.scalar_type()) << own.sizes();
  throw PluginError(text.str());
}

}  // namespace

template <class Function>
void SlotOptimizer::each_parameter(const Function& function) const {
  for (std::size_t g = 0; g < groups_.size(); ++g)
    for (std::size_t i = 0; i < groups_[g].names.size(); ++i) function(groups_[g].names[i], members_[g], i);
}

void SlotOptimizer::open(std::vector<ParamGroup> groups) {
  Optimizer::open(std::move(groups));
  for (const ParamGroup& group : groups_) {
    Members& members = members_.emplace_back();
    members.lists.params = group.params;
    members.lists.grads.reserve(group.params.size());
    members.lists.slots.resize(slots_.size());
    members.updates.assign(group.params.size(), 0);
    for (std::size_t i = 0; i < group.params.size(); ++i) {
      check(group, i);
      for (std::size_t s = 0; s < slots_.size(); ++s)
        members.lists.slots[s].push_back(make_slot(slots_[s], group.names[i], group.params[i].detach()));
    }
  }
}

void SlotOptimizer::step() {
  for (std::size_t g = 0; g < groups_.size(); ++g) step_group(g);
}

void SlotOptimizer::step_group(std::size_t g) {
  const at::AutoDispatchBelowAutograd untracked;  // as NoGradGuard, without the dispatch through autograd
  Members& members = members_.at(g);
  if (!members.together || !gather(g)) return step_apart(g);
  for (std::int64_t& updates : members.updates) ++updates;
  update(g, members.lists, members.updates.front());
  members.lists.grads.clear();  // gradients are freed with their graph
}

void SlotOptimizer::save(StateWriter& state) const {
  each_parameter([&](const std::string& name, const Members& members, std::size_t i) {
    state.scalar("step/" + name, members.updates[i]);
    for (std::size_t s = 0; s < slots_.size(); ++s)
      state.tensor(slots_[s].name + "/" + name, members.lists.slots[s][i]);
  });
}

void SlotOptimizer::load(const StateReader& state) {
  each_parameter([&](const std::string& name, const Members& members, std::size_t i) {
    state.integer("step/" + name);
    for (std::size_t s = 0; s < slots_.size(); ++s)
      check_loaded(slots_[s].name + "/" + name, state, members.lists.slots[s][i]);
  });  // all of it fits: only now is anything changed
  const at::AutoDispatchBelowAutograd untracked;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    Members& members = members_[g];
    for (std::size_t i = 0; i < members.updates.size(); ++i) {
      const std::string& name = groups_[g].names[i];
      members.updates[i] = state.integer("step/" + name);
      for (std::size_t s = 0; s < slots_.size(); ++s) {
        at::Tensor& own = members.lists.slots[s][i];
        const at::Tensor& saved = state.tensor(slots_[s].name + "/" + name);
        // By handle where it can be used as it is: a swap costs the same whatever the size.
        if (saved.device() == own.device() && saved.strides() == own.strides() && !saved.requires_grad())
          own = saved;
        else
          own.copy_(saved);
      }
    }
    members.settle();
  }
}

at::Tensor SlotOptimizer::make_slot(const Slot& slot, const std::string& /*name*/,
                                    const at::Tensor& param) const {
  return at::full_like(param, slot.initial);
}

void SlotOptimizer::Members::settle() {
  together = std::adjacent_find(updates.begin(), updates.end(), std::not_equal_to<>()) == updates.end();
}

bool SlotOptimizer::gather(std::size_t g) {
  UpdateLists& lists = members_[g].lists;
  lists.grads.clear();
  for (std::size_t i = 0; i < lists.params.size(); ++i) {
    const at::Tensor& grad = lists.params[i].grad();
    if (!grad.defined()) return false;
    check_layout(g, i, grad);
    lists.grads.push_back(grad);
  }
  return !lists.params.empty();
}

void SlotOptimizer::step_apart(std::size_t g) {
  Members& members = members_[g];
  members.lists.grads.clear();
  std::map<std::int64_t, UpdateLists> by_count;
  for (std::size_t i = 0; i < members.updates.size(); ++i) {
    const at::Tensor& param = members.lists.params[i];
    if (!param.grad().defined()) continue;
    check_layout(g, i, param.grad());
    UpdateLists& lists = by_count[++members.updates[i]];
    lists.params.push_back(param);
    lists.grads.push_back(param.grad());
    lists.slots.resize(slots_.size());
    for (std::size_t s = 0; s < slots_.size(); ++s) lists.slots[s].push_back(members.lists.slots[s][i]);
  }
  for (auto& [updates, lists] : by_count) update(g, lists, updates);
  members.settle();
}

void SlotOptimizer::check(const ParamGroup& group, std::size_t i) const {
  const at::Tensor& param = group.params[i];
  const at::Tensor& first = group.params.front();
  if (!at::isFloatingType(param.scalar_type()))
    throw PluginError("parameter " + group.names[i] + " is of type " + c10::toString(param.scalar_type()) +
                      "; an optimizer updates floating-point parameters");
  if (param.scalar_type() == at::kBFloat16 && !takes_halves())
    throw ConfigError("parameter " + group.names[i] +
                      " is bfloat16, too coarse to be updated by itself: choose lazy_adam, which knows its "
                      "lower halves, or have the model keep whole weights (precision = \"fp32\")");
  const bool half = param.scalar_type() == at::kBFloat16 || first.scalar_type() == at::kBFloat16;
  if (param.device() != first.device() ||
      (param.scalar_type() != first.scalar_type() && !(half && takes_halves())))
    throw PluginError("parameters " + group.names.front() + " (" + c10::toString(first.scalar_type()) + ", " +
                      first.device().str() + ") and " + group.names[i] + " (" +
                      c10::toString(param.scalar_type()) + ", " + param.device().str() +
                      ") are in one group; they must share dtype and device");
  if (!param.is_non_overlapping_and_dense() || (param.is_cpu() && !param.is_contiguous()))
    throw PluginError("parameter " + group.names[i] + " is not contiguous; make it so before training");
}

void SlotOptimizer::check_layout(std::size_t g, std::size_t i, const at::Tensor& grad) const {
  if (grad.is_sparse() && !takes_sparse())
    throw ConfigError(
        "parameter " + groups_[g].names[i] +
        " has a sparse gradient, which this optimizer does not take: choose lazy_adam, or have the "
        "model give dense ones");
}

at::TensorList StepTensors::list(const UpdateLists& lists, std::int64_t updates) {
  const at::Tensor& param = lists.params.front();
  if (list_.empty()) list_.push_back(at::zeros({}, param.options().dtype(at::kFloat)));
  if (list_.size() != lists.params.size()) list_.resize(lists.params.size(), at::Tensor(list_.front()));
  if (param.is_cpu())
    *list_.front().mutable_data_ptr<float>() = static_cast<float>(updates);
  else
    list_.front().fill_(updates);
  return list_;
}

}  // namespace trainyard
