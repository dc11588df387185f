#include "stage.hpp"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/sub.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <utility>

namespace pipelined {
namespace {

/// The part with tensors of its own, on the storage of the run's network or on another. What is written to that
/// storage by another handle is not seen by autograd's check: backward takes the weights as they are by then.
Graph with_handles(Graph part, bool apart) {
  for (GraphValue& value : part.values)
    if (value.initializer.defined())
      value.initializer =
          apart && value.trainable ? value.initializer.detach().clone() : value.initializer.variable_data();
  return part;
}

/// Whether the loops of rules.hpp can walk a weight and what belongs to it.
bool plain(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.scalar_type() == at::kFloat && tensor.is_contiguous();
}

float* floats(const at::Tensor& tensor) {
  return tensor.data_ptr<float>();
}

std::size_t length(const at::Tensor& tensor) {
  return static_cast<std::size_t>(tensor.numel());
}

Tensors copies(const Tensors& tensors) {
  Tensors result;
  for (const at::Tensor& each : tensors) result.push_back(each.clone());
  return result;
}

void write(const Tensors& to, const Tensors& from) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
}

}  // namespace

Stage::Stage(const Graph& part, const Weights& weights, std::int64_t number, std::int64_t stages,
             const Method& method, std::function<void(Tensors&)> clip)
    : method_(method),
      delay_(pipelined::delay(number, stages)),
      is_first_(number == 0),
      clip_(std::move(clip)),
      apart_(stashes(method.mitigation) || predicts_by_velocity(method.mitigation) ||
             predicts_by_weights(method.mitigation)),
      network_(with_handles(part, apart_)) {
  for (const NamedTensor& each : network_.parameters()) {
    leaves_.push_back(each.tensor);
    data_.push_back(each.tensor.variable_data());
    weights_.push_back(weights.at(each.name));
  }
  if (predicts_by_weights(method.mitigation)) before_ = copies(data_);
}

Message Stage::forward(Message in) {
  const at::NoGradGuard untracked;
  if (apart_) set_for_forward(*in.unit);
  Passed passed{in.unit, std::move(in.tensors), {}, {}, updates_};
  if (stashes(method_.mitigation) || method_.keeps_weights) passed.weights = copies(data_);
  passed.outputs = pass(*in.unit, passed.inputs);
  Message out{std::move(in.unit), {}};
  for (const at::Tensor& each : passed.outputs) out.tensors.push_back(each.detach());
  passed_.push_back(std::move(passed));
  most_ = std::max(most_, passed_.size());
  return out;
}

Tensors Stage::pass(const Unit& unit, const Tensors& inputs) {
  const at::AutoGradMode tracked(true);
  if (!is_first_)
    for (const at::Tensor& each : inputs)
      if (each.is_floating_point()) each.set_requires_grad(true);
  return network_.forward_all(inputs, unit.pass);
}

void Stage::set_for_forward(const Unit& unit) {
  for (std::size_t p = 0; p < weights_.size(); ++p) {
    const auto& [weight, velocity, lr, decay] = weights_[p];
    if (stashes(method_.mitigation) || delay_ == 0) {
      data_[p].copy_(weight);
      continue;
    }
    const bool by_velocity = predicts_by_velocity(method_.mitigation);
    const double rate = method_.rates(lr * unit.factor, unit.momentum).lr;
    if (!plain(weight))
      data_[p].copy_(by_velocity ? at::add(weight, velocity, -rate * horizon())
                                 : at::add(weight, at::sub(weight, before_[p]), horizon()));
    else if (by_velocity)
      predict_by_velocity(floats(data_[p]), floats(weight), floats(velocity), length(weight), rate,
                          horizon());
    else
      predict_by_weights(floats(data_[p]), floats(weight), floats(before_[p]), length(weight), horizon());
  }
}

void Stage::set_for_backward(const Passed& passed) {
  if (stashes(method_.mitigation)) return write(data_, passed.weights);
  for (std::size_t p = 0; p < weights_.size(); ++p) data_[p].copy_(weights_[p].weight);
}

Message Stage::backward(const Message& gradients) {
  const at::NoGradGuard untracked;
  const Passed passed = std::move(passed_.front());
  passed_.pop_front();
  if (apart_) set_for_backward(passed);
  Tensors outputs, given, wanted = leaves_;
  for (std::size_t i = 0; i < passed.outputs.size(); ++i)
    if (gradients.tensors[i].defined() && passed.outputs[i].requires_grad()) {
      outputs.push_back(passed.outputs[i]);
      given.push_back(gradients.tensors[i]);
    }
  for (const at::Tensor& each : passed.inputs)
    if (each.requires_grad()) wanted.push_back(each);
  Tensors found(wanted.size());
  if (!outputs.empty() && !wanted.empty())
    found = torch::autograd::grad(outputs, wanted, given, /*retain_graph=*/false, /*create_graph=*/false,
                                  /*allow_unused=*/true);
  Message back{passed.unit, {}};
  std::size_t next = leaves_.size();
  for (const at::Tensor& each : passed.inputs)
    back.tensors.push_back(each.requires_grad() ? found[next++] : at::Tensor());
  found.resize(leaves_.size());
  update(*passed.unit, found);
  return back;
}

/// A weight without a gradient stays as it is.
void Stage::update(const Unit& unit, Tensors& gradients) {
  ++updates_;
  Tensors all;
  for (const at::Tensor& each : gradients)
    if (each.defined()) all.push_back(each);
  if (!all.empty()) clip_(all);
  for (std::size_t p = 0; p < weights_.size(); ++p) {
    const auto& [weight, velocity, lr, decay] = weights_[p];
    if (!before_.empty()) before_[p].copy_(weight);
    if (!gradients[p].defined()) continue;
    const Rates rates = method_.rates(lr * unit.factor, unit.momentum);
    const Spike spike = pipelined::spike(method_.mitigation, rates.momentum, horizon());
    if (plain(weight) && plain(velocity)) {
      const at::Tensor gradient = gradients[p].contiguous();
      pipelined::update(floats(weight), floats(velocity), floats(gradient), length(weight), rates,
                        static_cast<float>(decay), spike);
      continue;
    }
    const at::Tensor gradient = at::add(gradients[p], weight, decay);
    velocity.mul_(rates.momentum).add_(gradient);
    weight.add_(velocity, -rates.lr * spike.a).add_(gradient, -rates.lr * spike.b);
  }
}

/// The network's buffers, running statistics, had this pass already; they are written back past autograd, which has
/// kept some of them for the way back.
void Stage::repeat(UnitHandle unit, Tensors inputs, Tensors weights) {
  const at::NoGradGuard untracked;
  Tensors buffers;
  for (const NamedTensor& each : network_.buffers()) buffers.push_back(each.tensor.variable_data());
  const Tensors now = copies(data_), statistics = copies(buffers);
  write(data_, weights);
  Tensors outputs = pass(*unit, inputs);
  write(data_, now);
  write(buffers, statistics);
  passed_.push_back({std::move(unit), std::move(inputs), std::move(outputs), std::move(weights), updates_});
}

}  // namespace pipelined
