#include <trainyard/testing/workshop.hpp>

#include <filesystem>
#include <numeric>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cross_entropy_loss.h>

#include <trainyard/dataset.hpp>
#include <trainyard/error.hpp>
#include <trainyard/testing/run.hpp>

namespace trainyard::testing {

FakeWorkshop::FakeWorkshop()
    : directory(std::filesystem::current_path().string()),
      metrics{{"val", {{"val/loss", 0.5}}}},
      network_(tiny_network(tiny_schema())) {}
FakeWorkshop::~FakeWorkshop() = default;

Network& FakeWorkshop::network() {
  return *network_;
}

std::vector<NamedTensor> FakeWorkshop::weights() {
  std::vector<NamedTensor> all = network_->parameters();
  for (const NamedTensor& each : network_->buffers()) all.push_back(each);
  return all;
}

const State* FakeWorkshop::state(std::string_view owner) const {
  const auto found = states.find(owner);
  return found == states.end() ? nullptr : &found->second;
}

std::vector<std::string> FakeWorkshop::owners() const {
  std::vector<std::string> owners;
  for (const auto& [owner, state] : states) owners.push_back(owner);
  return owners;
}

std::vector<std::string> FakeWorkshop::splits() const {
  std::vector<std::string> splits;
  for (const auto& [split, values] : metrics) splits.push_back(split);
  return splits;
}

std::map<std::string, double> FakeWorkshop::evaluate(std::string_view split) {
  const auto found = metrics.find(split);
  if (found == metrics.end()) throw ConfigError("the run has no split \"" + std::string(split) + "\"");
  return stop ? std::map<std::string, double>() : found->second;
}

Dataset& FakeWorkshop::dataset(std::string_view split) {
  const auto found = datasets.find(split);
  if (found != datasets.end()) return *found->second;
  throw ConfigError("the run has no split \"" + std::string(split) + "\"");
}

std::vector<std::int64_t> FakeWorkshop::samples(std::string_view split) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(dataset(split).size()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::vector<Batch> FakeWorkshop::batches(std::string_view split, std::int64_t count) {
  if (split != "train" && !metrics.contains(split))
    throw ConfigError("the run has no split \"" + std::string(split) + "\"");
  std::vector<Batch> batches;
  for (std::int64_t i = 0; i < count; ++i)
    batches.push_back(tiny_batch(tiny_schema(), 8, static_cast<std::uint64_t>(i + 1)));
  return batches;
}

void FakeWorkshop::train(std::int64_t steps, const std::function<void()>& look) {
  if (stop) return;
  const std::vector<NamedTensor> parameters = network_->parameters();
  std::vector<at::Tensor> before;
  for (const NamedTensor& each : parameters) before.push_back(each.tensor.detach().clone());
  for (const Batch& batch : batches("train", steps)) {
    at::cross_entropy_loss(network_->forward(batch, {.training = true}), batch.target).backward();
    const at::NoGradGuard untracked;
    for (const NamedTensor& each : parameters) {
      at::Tensor weight = each.tensor;
      weight.sub_(weight.grad(), 0.1);
      weight.mutable_grad().reset();
    }
  }
  look();
  const at::NoGradGuard untracked;
  for (std::size_t i = 0; i < parameters.size(); ++i) at::Tensor(parameters[i].tensor).copy_(before[i]);
}

const std::string& FakeWorkshop::folder() {
  return directory;
}

}  // namespace trainyard::testing
