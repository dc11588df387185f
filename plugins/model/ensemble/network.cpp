#include "network.hpp"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <numeric>
#include <utility>

#include <ATen/ops/cat.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <trainyard/error.hpp>
#include <trainyard/formats/safetensors.hpp>
#include <trainyard/helpers/shape_text.hpp>

namespace ensemble {
namespace {

using namespace trainyard;

constexpr double least_probability = 1e-30;  // whose logarithm a float holds

std::vector<NamedTensor> weights_of(const Network& network) {
  std::vector<NamedTensor> all = network.parameters();
  for (NamedTensor& each : network.buffers()) all.push_back(std::move(each));
  return all;
}

/// Writes the weights of a file over those of a member.
void read_weights(const Network& member, const std::string& path) {
  std::vector<NamedTensor> given = read_safetensors(path);
  for (const NamedTensor& each : weights_of(member)) {
    const auto found = std::ranges::find(given, each.name, &NamedTensor::name);
    const bool grows = each.tensor.dim() == 1 && each.tensor.numel() == 0;
    if (found == given.end() || (!grows && found->tensor.sizes() != each.tensor.sizes()))
      throw ConfigError(
          path + " has " + (found == given.end() ? "no tensor" : shape_text(found->tensor.sizes().vec())) +
          " for \"" + each.name + "\" of its member, which is " + shape_text(each.tensor.sizes().vec()) +
          ": model.members are the tables [model] of the runs in model.from, in their order");
    at::Tensor own = each.tensor;
    if (grows) own.resize_(found->tensor.sizes());
    own.copy_(found->tensor);
  }
}

}  // namespace

EnsembleNetwork::EnsembleNetwork(std::vector<Member> members, std::vector<std::string> from,
                                 const BatchSchema& schema, Host& host)
    : members_(std::move(members)),
      from_(std::move(from)),
      shape_(members_.front().network->output_shape()),
      host_(host),
      counts_(at::zeros({std::ssize(members_)})) {
  for (const Member& each : members_) {
    if (each.network->output_shape() != shape_)
      throw ConfigError("model.members give outputs of " + shape_text(shape_) + " and of " +
                        shape_text(each.network->output_shape()) + ": their mean needs one shape");
    for (const NamedTensor& weight : each.network->parameters()) weight.tensor.set_requires_grad(false);
  }
  if (schema.classes > 0)
    means_ = shape_ == std::vector<std::int64_t>{schema.classes} ? Means::classes : Means::binary;
}

void EnsembleNetwork::to(at::Device device) {
  for (const Member& each : members_) each.network->to(device);
  counts_ = counts_.to(device);
}

void EnsembleNetwork::adopt(const std::vector<NamedTensor>& tensors) {
  const std::vector<NamedTensor> own = buffers();
  const auto is_same = [](const NamedTensor& a, const NamedTensor& b) {
    const bool grows = b.tensor.dim() == 1 && b.tensor.scalar_type() == at::kByte;
    return a.name == b.name && a.tensor.scalar_type() == b.tensor.scalar_type() &&
           (grows || a.tensor.sizes() == b.tensor.sizes());
  };
  if (!std::ranges::equal(tensors, own, is_same))
    throw ConfigError(
        "the model that is replaced has other members: an ensemble takes the place of one of the same");
  counts_ = tensors.front().tensor;
  std::size_t next = 1;
  for (const Member& each : members_) {
    std::vector<NamedTensor> of_member = weights_of(*each.network);
    for (NamedTensor& weight : of_member) weight.tensor = tensors[next++].tensor;
    each.network->adopt(of_member);
  }
}

std::vector<NamedTensor> EnsembleNetwork::buffers() const {
  std::vector<NamedTensor> all = {{"chosen", counts_}};
  for (std::size_t i = 0; i < members_.size(); ++i)
    for (NamedTensor& each : weights_of(*members_[i].network))
      all.push_back({std::to_string(i) + "." + each.name, each.tensor});
  return all;
}

std::vector<double> EnsembleNetwork::counts() const {
  const at::Tensor all = counts_.to(at::kCPU, at::kDouble).contiguous();
  return {all.const_data_ptr<double>(), all.const_data_ptr<double>() + all.numel()};
}

/// Returns logarithms of probabilities, [size, classes], or numbers.
at::Tensor EnsembleNetwork::said(const Member& member, const Batch& batch) const {
  const at::Tensor output = member.network->forward(batch, {}).to(at::kDouble).reshape({batch.size(), -1});
  if (means_ == Means::classes) return at::log_softmax(output, 1);
  if (means_ == Means::binary) return at::cat({at::log_sigmoid(output.neg()), at::log_sigmoid(output)}, 1);
  return output;
}

at::Tensor EnsembleNetwork::forward(const Batch& batch, const ForwardContext&) {
  const c10::NoGradGuard untracked;
  std::vector<double> weights = counts();
  if (std::accumulate(weights.begin(), weights.end(), 0.0) == 0.0)
    std::ranges::fill(weights, 1.0);  // nothing is chosen yet: all
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  at::Tensor mean;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (weights[i] == 0.0) continue;
    const at::Tensor answers = said(members_[i], batch);
    const at::Tensor part = (means_ == Means::numbers ? answers : answers.exp()).mul(weights[i] / total);
    mean = mean.defined() ? mean.add_(part) : part;
  }
  if (means_ != Means::numbers) mean = mean.clamp_min_(least_probability).log_();
  if (means_ == Means::binary) mean = mean.select(1, 1) - mean.select(1, 0);
  std::vector<std::int64_t> shape = {batch.size()};
  shape.insert(shape.end(), shape_.begin(), shape_.end());
  return mean.to(at::kFloat).reshape(shape);
}

/// Reads the weights of the members from their runs.
void EnsembleNetwork::load() const {
  if (from_.empty())
    host_.log(LogLevel::warning, "model.from names no runs: the members are networks that nobody trained");
  for (std::size_t i = 0; i < from_.size(); ++i) {
    const std::filesystem::path folder = std::filesystem::path(host_.run().directory) / from_[i];
    read_weights(*members_[i].network, (folder / "model.safetensors").lexically_normal().string());
  }
}

/// Has the members answer on the validation split, which they were not trained on.
void EnsembleNetwork::look() {
  const std::vector<Batch> batches = host_.batches("val", std::numeric_limits<std::int64_t>::max());
  std::vector<at::Tensor> targets, members;
  for (const Batch& batch : batches)
    targets.push_back(means_ == Means::numbers ? batch.target.to(at::kDouble).reshape({-1}) : batch.target);
  if (targets.empty()) throw ConfigError("the run has no sample in [data.val], by which members are chosen");
  for (const Member& member : members_) {
    std::vector<at::Tensor> parts;
    for (const Batch& batch : batches) {
      const at::Tensor answers = said(member, batch);
      parts.push_back(means_ == Means::numbers
                          ? answers.reshape({-1})
                          : answers.gather(1, batch.target.unsqueeze(1)).reshape({-1}).exp());
    }
    members.push_back(at::cat(parts));
  }
  held_ = at::stack(members);
  if (means_ == Means::numbers) target_ = at::cat(targets);
}

void EnsembleNetwork::grow(const Batch&, const at::Tensor&, const at::Tensor&, double) {
  const c10::NoGradGuard untracked;
  const std::vector<double> before = counts();
  const double total = std::accumulate(before.begin(), before.end(), 0.0);
  if (total == 0.0) load();
  if (!held_.defined()) look();
  const at::Tensor sum = counts_.to(at::kDouble).unsqueeze(0).matmul(held_);
  const at::Tensor mean = (held_ + sum).div_(total + 1.0);
  const at::Tensor loss = means_ == Means::numbers ? (mean - target_).square_().mean(1)
                                                   : mean.clamp_min_(least_probability).log_().mean(1).neg();
  const at::Tensor losses = loss.to(at::kCPU).contiguous();
  const double* const of = losses.const_data_ptr<double>();
  std::int64_t best = -1;
  for (std::int64_t i = 0; i < losses.numel(); ++i)
    if (of[i] < (best < 0 ? std::numeric_limits<double>::infinity() : of[best])) best = i;
  if (best < 0) throw DataError("every member gives numbers on the validation split that are not finite");
  counts_[best].add_(1.0);
  host_.metric("chosen/loss", of[best]);
  for (std::int64_t i = 0; i < losses.numel(); ++i) {
    const double times = before[static_cast<std::size_t>(i)] + (i == best ? 1.0 : 0.0);
    host_.metric("chosen/" + std::to_string(i), times / (total + 1.0));
  }
}

}  // namespace ensemble
