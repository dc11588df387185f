// How many weights or filters of each layer stay.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/manifest.hpp>
#include <trainyard/scorer.hpp>

#include "../../transform/filters/cut.hpp"
#include "layers.hpp"
#include "passes.hpp"

namespace pruning {

enum class Allocation : std::uint8_t { global, uniform, error };

/// The share at which a size is met, and how often it was looked at.
struct Solved {
  double share = 1.0;
  std::int64_t size = 0;
  int evaluations = 0;
};

/// Finds the share in [0, 1] where `size`, which does not fall, comes within `tolerance` of `target`, or nearest to it, in so
/// many evaluations at most. `whole` is the size at 1. By the rule of false position, each second time by halves.
Solved solve(const std::function<std::int64_t(double)>& size, std::int64_t whole, double target,
             double tolerance, int most);

// Weights

/// Returns for each layer which weights stay, as the scores are shaped, where a share of all of them does: the highest of
/// all, or of each layer; of equal ones the last. Those of negative scores never stay.
std::vector<at::Tensor> kept_weights(const std::vector<at::Tensor>& scores, Allocation allocation,
                                     double share);

// Filters

/// Channels that the same layers make.
struct FilterGroup {
  std::vector<std::string> layers;
  std::vector<filters::Channel> channels;  ///< roots
  std::vector<double> scores;
  std::vector<bool> kept;
};

/// A layer that reads channels, as PFP's budget sees it.
struct Reader {
  std::map<filters::Channel, double> sensitivities;  ///< by root
  double alpha = 0.0;
};

/// Returns the channels that can be cut, with scores: of filters their sum over the layers that make a channel, of input
/// channels the largest over those that read it.
std::vector<FilterGroup> groups_of(const filters::Channels& channels, const std::vector<PrunedLayer>& layers,
                                   const std::vector<LayerScores>& scores, Scorer::Of of);
std::vector<Reader> readers_of(const filters::Channels& channels, const std::vector<PrunedLayer>& layers,
                               const std::vector<LayerScores>& scores);

/// 2 x 3 log(8 (positions + 1) taps / 1e-16).
double pfp_alpha(std::int64_t positions, std::int64_t taps);
/// Returns how many channels a layer keeps, at least one, where the error of its outputs may be `eps`: the expected number of
/// different ones among m = ceil(3 (6 + 2 eps) alpha sum / eps^2) drawn by sensitivity.
std::int64_t pfp_kept(const std::vector<double>& sensitivities, double alpha, double eps);
std::int64_t pfp_draws(double sum, double alpha, double eps);

/// Chooses the filters that stay, at least one of each group, such that `size` comes as near to `target` as whole filters
/// allow: by the allocation, then by one filter more or less in some groups. Returns how it was met.
Solved keep_filters(std::vector<FilterGroup>& groups, const std::vector<Reader>& readers,
                    Allocation allocation, const std::function<std::int64_t(const filters::Gone&)>& size,
                    double target, double tolerance);

filters::Gone gone_of(const std::vector<FilterGroup>& groups);

}  // namespace pruning

template <>
struct trainyard::Words<pruning::Allocation> {
  static constexpr std::string_view words[] = {"global", "uniform", "error"};
};
