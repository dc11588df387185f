#include "sample.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include <trainyard/dataset.hpp>
#include <trainyard/error.hpp>
#include <trainyard/loss.hpp>
#include <trainyard/network.hpp>

namespace pruning {
namespace {

/// The samples of the training data that neither the run nor one of its evaluations sees. A split of as many samples is taken
/// for another part of the same data.
std::vector<std::int64_t> left_out(Workshop& shop) {
  const std::int64_t size = shop.dataset("train").size();
  const std::vector<std::int64_t> trained = shop.samples("train");
  std::set<std::int64_t> seen(trained.begin(), trained.end());
  for (const std::string& split : shop.splits()) {
    if (shop.dataset(split).size() != size) continue;
    const std::vector<std::int64_t> evaluated = shop.samples(split);
    seen.insert(evaluated.begin(), evaluated.end());
  }
  std::vector<std::int64_t> left;
  for (std::int64_t i = 0; i < size; ++i)
    if (!seen.contains(i)) left.push_back(i);
  return left;
}

/// Moves a batch to where the network computes, and in what.
void place(Batch& batch, const Network& network, const std::string& device) {
  const at::ScalarType floats = network.parameters().front().tensor.scalar_type();
  const auto to = [&](at::Tensor& tensor) {
    if (!tensor.defined()) return;
    tensor = tensor.to(at::Device(device));
    if (at::isFloatingType(tensor.scalar_type())) tensor = tensor.to(floats);
  };
  for (at::Tensor& input : batch.inputs) to(input);
  to(batch.target);
}

SampleSet drawn(Workshop& shop, Host& host, std::vector<std::int64_t> pool, std::int64_t count,
                std::int64_t batch_size) {
  SampleSet set;
  const auto most = static_cast<std::int64_t>(pool.size());
  const std::int64_t taken = std::clamp<std::int64_t>(count, 1, most);
  const RandomStream random = host.random("samples");
  for (std::int64_t i = 0; i < taken; ++i) {  // Fisher and Yates's shuffle, as far as it is needed
    const auto place = static_cast<std::uint64_t>(i);
    std::swap(pool[place], pool[place + random.below(place, static_cast<std::uint64_t>(most - i))]);
  }
  pool.resize(static_cast<std::size_t>(taken));
  std::ranges::sort(pool);
  for (std::int64_t first = 0; first < taken; first += batch_size) {
    const auto begin = pool.begin() + first;
    std::vector<std::int64_t> indices(begin, begin + std::min(batch_size, taken - first));
    Batch batch = shop.dataset("train").read(indices, {host.random("rows"), first, 0});
    batch.indices = std::move(indices);
    set.batches.push_back(std::move(batch));
  }
  set.size = taken;
  return set;
}

bool is_read(const SampleSet& set) {
  return std::ranges::any_of(set.batches, [](const Batch& batch) {
    return std::ranges::any_of(batch.inputs,
                               [](const at::Tensor& input) { return input.any().item<bool>(); });
  });
}

}  // namespace

std::int64_t samples_for(double largest, double all) {
  return static_cast<std::int64_t>(std::ceil(3.0 * std::log(8.0 * largest * all / 1e-16)));
}

std::int64_t samples_for(const Graph& graph) {
  double largest = 1.0, all = 0.0;
  for (const Node& node : graph.nodes) {
    if (node.op != "Conv" && node.op != "Gemm" && node.op != "MatMul") continue;
    double neurons = 1.0;
    for (const std::int64_t each : graph.values[static_cast<std::size_t>(node.outputs[0])].shape)
      neurons *= each < 0 ? static_cast<double>(-each) : static_cast<double>(each);
    largest = std::max(largest, neurons);
    all += neurons;
  }
  return samples_for(largest, std::max(all, 1.0));
}

SampleSet draw(Workshop& shop, Host& host, SamplesOf of, std::int64_t count, std::int64_t batch_size) {
  SampleSet set;
  const std::vector<std::int64_t> rest = of == SamplesOf::rest ? left_out(shop) : std::vector<std::int64_t>();
  const auto half = static_cast<std::int64_t>((rest.size() + 1) / 2);
  if (!rest.empty()) set = drawn(shop, host, rest, std::min(count, half), batch_size);
  set.of = is_read(set) ? SamplesOf::rest : SamplesOf::take;
  if (set.of == SamplesOf::take) set = drawn(shop, host, shop.samples("train"), count, batch_size);
  for (Batch& batch : set.batches) {
    batch.weight = shop.loss().weight(batch);
    place(batch, shop.network(), host.run().device);
    set.weight += batch.weight;
  }
  return set;
}

}  // namespace pruning
