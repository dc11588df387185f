#include "core/engine/train/regions.hpp"

#include <trainyard/helpers/sparse.hpp>
#include <trainyard/network.hpp>
#include <trainyard/optimizer.hpp>
#include <trainyard/state.hpp>

namespace trainyard::train {
namespace {

std::vector<NamedTensor> weights(const Network& network) {
  std::vector<NamedTensor> all = network.parameters();
  for (NamedTensor& buffer : network.buffers()) all.push_back(std::move(buffer));
  return all;
}

std::vector<NamedTensor> gradients(const Network& network) {
  std::vector<NamedTensor> all;
  for (const NamedTensor& parameter : network.parameters())
    if (parameter.tensor.grad().defined())
      all.push_back({"gradient of " + parameter.name, stored(parameter.tensor.grad())});
  return all;
}

std::vector<NamedTensor> state(const Optimizer& optimizer) {
  State state;
  StateWriter writer(state);
  optimizer.save(writer);
  std::vector<NamedTensor> all;
  for (const auto& [name, tensor] : state.tensors) all.push_back({name, tensor});
  return all;
}

std::vector<NamedTensor> contents(const Batch& batch) {
  std::vector<NamedTensor> all;
  for (std::size_t i = 0; i < batch.inputs.size(); ++i)
    all.push_back({"input " + std::to_string(i), batch.inputs[i]});
  all.push_back({"target", batch.target});
  return all;
}

}  // namespace

std::vector<NamedTensor> tensors_of(Region region, const LoopContext& context) {
  std::vector<NamedTensor> all;
  if (region == Region::model && context.network_ != nullptr) all = weights(*context.network_);
  if (region == Region::grads && context.network_ != nullptr) all = gradients(*context.network_);
  if (region == Region::optimizer && context.optimizer_ != nullptr) all = state(*context.optimizer_);
  if (region == Region::batch && context.batch_ != nullptr) all = contents(*context.batch_);
  if (region == Region::outputs && context.output_.defined()) all = {{"output", stored(context.output_)}};
  if (region == Region::outputs) all.push_back({"loss", context.loss_});
  std::erase_if(all, [](const NamedTensor& each) { return !each.tensor.defined(); });
  return all;
}

}  // namespace trainyard::train
