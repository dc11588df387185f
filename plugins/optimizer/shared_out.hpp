// A number for each of many tensors that all ranks have, each computed by one rank and given to all: the "parallel
// tensor operator" of Shi et al., "Towards Scalable Distributed Training of Deep Learning on Public Cloud Clusters",
// MLSys 2021. Worth it where computing the numbers takes longer than one small exchange.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <trainyard/ranks.hpp>

namespace optimizers {

/// The rank that has each item: the largest go first, to the rank with the least so far; of equal ones the first.
inline std::vector<int> owners(const std::vector<std::int64_t>& sizes, int ranks) {
  std::vector<std::size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return sizes[a] > sizes[b]; });
  std::vector<std::int64_t> loads(static_cast<std::size_t>(ranks), 0);
  std::vector<int> owner(sizes.size());
  for (const std::size_t item : order) {
    const auto least = std::min_element(loads.begin(), loads.end());
    *least += sizes[item] + 1;  // items of no size are spread, too
    owner[item] = static_cast<int>(least - loads.begin());
  }
  return owner;
}

/// A number for each item, in their order, the same on all ranks to the bit. `compute` gives those of the items
/// whose numbers it gets, as a tensor. `options`: type and device of all that. A collective that waits.
template <class Compute>
at::Tensor shared_out(trainyard::RankGroup& ranks, const std::vector<std::int64_t>& sizes,
                      const at::TensorOptions& options, Compute&& compute) {
  const std::vector<int> owner = owners(sizes, ranks.size());
  std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks.size()), 0), places(sizes.size());
  std::vector<std::size_t> own;
  for (std::size_t item = 0; item < sizes.size(); ++item) {
    places[item] = counts[static_cast<std::size_t>(owner[item])]++;
    if (owner[item] == ranks.rank()) own.push_back(item);
  }
  const std::int64_t most = *std::max_element(counts.begin(), counts.end());
  for (std::size_t item = 0; item < sizes.size(); ++item) places[item] += owner[item] * most;
  const at::Tensor mine = at::zeros({most}, options);
  if (!own.empty()) mine.narrow(0, 0, std::ssize(own)).copy_(compute(own));
  const at::Tensor all = at::empty({most * ranks.size()}, mine.options());
  ranks.all_gather(all, mine)->wait();
  return all.index_select(0, at::tensor(places, at::kLong).to(mine.device()));
}

}  // namespace optimizers
