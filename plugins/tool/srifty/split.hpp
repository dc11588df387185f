// Shares of a batch for ranks of different speed.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <vector>

namespace srifty {

/// Rounds shares to whole samples that sum to `batch`: each its floor, the rest by the largest remainders.
inline std::vector<std::int64_t> rounded_shares(const std::vector<double>& shares, std::int64_t batch) {
  std::vector<std::int64_t> samples;
  samples.reserve(shares.size());
  for (const double share : shares) samples.push_back(static_cast<std::int64_t>(std::floor(share)));
  std::int64_t left = batch - std::accumulate(samples.begin(), samples.end(), std::int64_t{0});
  std::vector<std::size_t> order(shares.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return shares[a] - std::floor(shares[a]) > shares[b] - std::floor(shares[b]);
  });
  for (std::size_t i = 0; left > 0; i = (i + 1) % order.size(), --left) ++samples[order[i]];
  return samples;
}

/// Splits a batch such that all ranks take the same time: shares in proportion to each rank's samples a second
/// at its own share, found by repeating. `seconds(rank, samples)` is what a rank takes; `most` caps a rank's
/// samples. Nothing where the caps do not hold the batch, or there are fewer samples than ranks.
inline std::optional<std::vector<std::int64_t>> split_batch(
    std::int64_t batch, std::size_t ranks, const std::function<double(std::size_t, double)>& seconds,
    const std::vector<std::int64_t>& most) {
  if (batch < static_cast<std::int64_t>(ranks) ||
      std::accumulate(most.begin(), most.end(), std::int64_t{0}) < batch)
    return std::nullopt;
  std::vector<double> shares(ranks, static_cast<double>(batch) / static_cast<double>(ranks));
  for (int round = 0; round < 50; ++round) {
    std::vector<double> speeds;
    for (std::size_t i = 0; i < ranks; ++i) speeds.push_back(shares[i] / seconds(i, shares[i]));
    // Those that would get more than they can hold get that, and the others share the rest.
    std::vector<bool> full(ranks, false);
    double left = static_cast<double>(batch);
    for (bool changed = true; changed;) {
      changed = false;
      double sum = 0.0;
      for (std::size_t i = 0; i < ranks; ++i) sum += full[i] ? 0.0 : speeds[i];
      for (std::size_t i = 0; i < ranks; ++i) {
        if (full[i] || left * speeds[i] / sum <= static_cast<double>(most[i])) continue;
        full[i] = changed = true;
        shares[i] = static_cast<double>(most[i]);
        left -= shares[i];
        break;
      }
      if (changed) continue;
      for (std::size_t i = 0; i < ranks; ++i)
        if (!full[i]) shares[i] = std::max(1.0, left * speeds[i] / sum);
    }
  }
  std::vector<std::int64_t> samples = rounded_shares(shares, batch);
  // A rank that is too slow for a sample has one all the same, which those with the most have less.
  for (std::int64_t more = std::accumulate(samples.begin(), samples.end(), -batch); more > 0; --more)
    --*std::max_element(samples.begin(), samples.end());
  return samples;
}

}  // namespace srifty
