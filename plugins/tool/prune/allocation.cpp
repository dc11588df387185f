#include "allocation.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <set>

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>

namespace pruning {
namespace {

constexpr double pfp_delta = 1e-16;

/// Returns the places of numbers in ascending order; of equal ones the first comes first.
std::vector<std::size_t> ascending(const std::vector<double>& numbers) {
  std::vector<std::size_t> places(numbers.size());
  std::iota(places.begin(), places.end(), 0);
  std::ranges::stable_sort(places, {}, [&](std::size_t i) { return numbers[i]; });
  return places;
}

/// Returns which of a tensor's elements are the `count` highest.
at::Tensor highest(const at::Tensor& scores, std::int64_t count) {
  const at::Tensor flat = scores.flatten();
  count = std::min(count, flat.ge(0).sum().item<std::int64_t>());
  at::Tensor kept = at::zeros_like(flat, at::kBool);
  const at::Tensor order = std::get<1>(flat.sort(/*stable=*/true, 0, /*descending=*/false));
  if (count > 0) kept.index_fill_(0, order.slice(0, flat.numel() - count), 1);
  return kept.view_as(scores);
}

// Which filters stay

void keep_global(std::vector<FilterGroup>& groups, double share) {
  std::vector<double> all;
  for (const FilterGroup& group : groups) all.insert(all.end(), group.scores.begin(), group.scores.end());
  const std::vector<std::size_t> order = ascending(all);
  const std::int64_t count = std::llround(share * static_cast<double>(all.size()));
  std::vector<bool> kept(all.size());
  for (std::size_t i = all.size() - static_cast<std::size_t>(count); i < all.size(); ++i)
    kept[order[i]] = true;
  auto begin = kept.begin();
  for (FilterGroup& group : groups) {
    group.kept.assign(begin, begin + std::ssize(group.scores));
    begin += std::ssize(group.scores);
  }
}

void keep_uniform(std::vector<FilterGroup>& groups, double share) {
  for (FilterGroup& group : groups) {
    const std::vector<std::size_t> order = ascending(group.scores);
    const std::int64_t count = std::llround(share * static_cast<double>(order.size()));
    group.kept.assign(order.size(), false);
    for (std::size_t i = order.size() - static_cast<std::size_t>(count); i < order.size(); ++i)
      group.kept[order[i]] = true;
  }
}

/// A channel stays where a layer that reads it keeps it at this error.
void keep_by_error(std::vector<FilterGroup>& groups, const std::vector<Reader>& readers, double eps) {
  std::set<filters::Channel> wanted;
  for (const Reader& reader : readers) {
    std::vector<filters::Channel> channels;
    std::vector<double> scores;
    for (const auto& [channel, score] : reader.sensitivities)
      channels.push_back(channel), scores.push_back(score);
    const std::vector<std::size_t> order = ascending(scores);
    const std::int64_t count = pfp_kept(scores, reader.alpha, eps);
    for (std::size_t i = order.size() - static_cast<std::size_t>(count); i < order.size(); ++i)
      wanted.insert(channels[order[i]]);
  }
  for (FilterGroup& group : groups)
    for (std::size_t i = 0; i < group.channels.size(); ++i)
      group.kept[i] = wanted.contains(group.channels[i]);
}

void keep_one_of_each(std::vector<FilterGroup>& groups) {
  for (FilterGroup& group : groups)
    if (std::ranges::none_of(group.kept, std::identity{})) group.kept[ascending(group.scores).back()] = true;
}

// The last filters

/// One filter of a group more, the best that is gone, or one fewer, the worst that stays.
struct Move {
  std::size_t group, filter;
};

std::vector<Move> moves_of(const std::vector<FilterGroup>& groups) {
  std::vector<Move> moves;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    std::optional<std::size_t> worst, best;
    const FilterGroup& group = groups[g];
    for (const std::size_t i : ascending(group.scores)) {
      if (group.kept[i] && !worst) worst = i;
      if (!group.kept[i]) best = i;
    }
    if (worst && std::ranges::count(group.kept, true) > 1) moves.push_back({g, *worst});
    if (best) moves.push_back({g, *best});
  }
  return moves;
}

void flip(std::vector<FilterGroup>& groups, const Move& move) {
  groups[move.group].kept[move.filter].flip();
}

/// Takes single filters, or two of different groups at once, in or out as long as the size comes nearer to its target. Returns
/// how far off it is.
double move_single(std::vector<FilterGroup>& groups,
                   const std::function<std::int64_t(const filters::Gone&)>& size, double target,
                   double tolerance) {
  const auto off = [&] { return std::abs(static_cast<double>(size(gone_of(groups))) - target); };
  double error = off();
  constexpr int most_moves = 40;
  for (int made = 0; made < most_moves && error > tolerance; ++made) {
    const std::vector<Move> moves = moves_of(groups);
    double least = error;
    std::vector<Move> best;
    for (std::size_t i = 0; i < moves.size(); ++i) {
      flip(groups, moves[i]);
      if (const double found = off(); found < least) least = found, best = {moves[i]};
      for (std::size_t j = i + 1; j < moves.size() && least > tolerance; ++j) {
        if (moves[j].group == moves[i].group) continue;
        flip(groups, moves[j]);
        if (const double found = off(); found < least) least = found, best = {moves[i], moves[j]};
        flip(groups, moves[j]);
      }
      flip(groups, moves[i]);
    }
    if (best.empty()) break;
    for (const Move& move : best) flip(groups, move);
    error = least;
  }
  return error;
}

}  // namespace

Solved solve(const std::function<std::int64_t(double)>& size, std::int64_t whole, double target,
             double tolerance, int most) {
  Solved best{1.0, whole, 0};
  double low = 0.0, high = 1.0, low_size = 0.0, high_size = static_cast<double>(whole);
  for (int i = 0; i < most && std::abs(static_cast<double>(best.size) - target) > tolerance; ++i) {
    const double part = (target - low_size) / std::max(high_size - low_size, 1.0);
    const double share = low + (high - low) * (i % 2 == 0 ? std::clamp(part, 0.0, 1.0) : 0.5);
    const std::int64_t found = size(share);
    best.evaluations = i + 1;
    if (std::abs(static_cast<double>(found) - target) < std::abs(static_cast<double>(best.size) - target))
      best = {share, found, i + 1};
    if (static_cast<double>(found) > target)
      high = share, high_size = static_cast<double>(found);
    else
      low = share, low_size = static_cast<double>(found);
  }
  return best;
}

std::vector<at::Tensor> kept_weights(const std::vector<at::Tensor>& scores, Allocation allocation,
                                     double share) {
  const auto part = [share](std::int64_t of) { return std::llround(share * static_cast<double>(of)); };
  std::vector<at::Tensor> kept;
  if (allocation == Allocation::uniform) {
    for (const at::Tensor& each : scores) kept.push_back(highest(each, part(each.numel())));
    return kept;
  }
  std::vector<at::Tensor> flat;
  for (const at::Tensor& each : scores) flat.push_back(each.flatten());
  const at::Tensor all = at::cat(flat), chosen = highest(all, part(all.numel()));
  std::int64_t begin = 0;
  for (const at::Tensor& each : scores) {
    kept.push_back(chosen.slice(0, begin, begin + each.numel()).view_as(each));
    begin += each.numel();
  }
  return kept;
}

std::vector<FilterGroup> groups_of(const filters::Channels& channels, const std::vector<PrunedLayer>& layers,
                                   const std::vector<LayerScores>& scores, Scorer::Of of) {
  std::map<filters::Channel, double> score;
  std::map<filters::Channel, std::set<std::string>> makers;
  for (const filters::Layer& layer : channels.layers())
    for (const filters::Channel each : layer.outputs) makers[channels.root(each)].insert(layer.name);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const bool made = of == Scorer::Of::filters;
    const std::vector<filters::Channel>& list =
        made ? layers[i].channels->outputs : layers[i].channels->inputs;
    const at::Tensor values = scores[i].scores.contiguous();
    for (std::size_t j = 0; j < list.size(); ++j) {
      const double value = values.const_data_ptr<double>()[j];
      double& sum = score.try_emplace(channels.root(list[j]), 0.0).first->second;
      sum = made ? sum + value : std::max(sum, value);
    }
  }
  std::set<std::string> chosen;
  for (const PrunedLayer& layer : layers) chosen.insert(layer.name);
  std::map<std::set<std::string>, FilterGroup> groups;
  for (const auto& [channel, value] : score) {
    const auto by = makers.find(channel);
    if (by == makers.end() || !channels.obstacle(channel).empty()) continue;
    if (!std::ranges::includes(chosen, by->second)) continue;
    FilterGroup& group = groups[by->second];
    group.layers.assign(by->second.begin(), by->second.end());
    group.channels.push_back(channel);
    group.scores.push_back(value);
    group.kept.push_back(true);
  }
  std::vector<FilterGroup> all;
  for (auto& [makers_of, group] : groups) all.push_back(std::move(group));
  return all;
}

std::vector<Reader> readers_of(const filters::Channels& channels, const std::vector<PrunedLayer>& layers,
                               const std::vector<LayerScores>& scores) {
  std::vector<Reader> readers;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const std::vector<filters::Channel>& list = layers[i].channels->inputs;
    Reader reader;
    const at::Tensor values = scores[i].scores.contiguous();
    for (std::size_t j = 0; j < list.size(); ++j) {
      double& most = reader.sensitivities.try_emplace(channels.root(list[j]), 0.0).first->second;
      most = std::max(most, values.const_data_ptr<double>()[j]);
    }
    if (reader.sensitivities.empty()) continue;
    // Where a layer reads an image flattened, the places of a channel are taps.
    const std::int64_t taps = layers[i].matrix.size(2) * std::ssize(list) / std::ssize(reader.sensitivities);
    reader.alpha = pfp_alpha(scores[i].positions, taps);
    readers.push_back(std::move(reader));
  }
  return readers;
}

double pfp_alpha(std::int64_t positions, std::int64_t taps) {
  return 2.0 * 3.0 *
         std::log(8.0 * static_cast<double>(positions + 1) * static_cast<double>(taps) / pfp_delta);
}

std::int64_t pfp_draws(double sum, double alpha, double eps) {
  return static_cast<std::int64_t>(
      std::min(std::ceil(3.0 * (6.0 + 2.0 * eps) * alpha * sum / (eps * eps)), 9e15));
}

std::int64_t pfp_kept(const std::vector<double>& sensitivities, double alpha, double eps) {
  const double sum = std::accumulate(sensitivities.begin(), sensitivities.end(), 0.0);
  if (sum <= 0.0) return 1;
  const auto draws = static_cast<double>(pfp_draws(sum, alpha, eps));
  double expected = 0.0;
  for (const double each : sensitivities) expected += 1.0 - std::pow(1.0 - each / sum, draws);
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(std::ceil(expected)), 1,
                                  std::ssize(sensitivities));
}

Solved keep_filters(std::vector<FilterGroup>& groups, const std::vector<Reader>& readers,
                    Allocation allocation, const std::function<std::int64_t(const filters::Gone&)>& size,
                    double target, double tolerance) {
  const auto choose = [&](double share) {
    if (allocation == Allocation::global) keep_global(groups, share);
    if (allocation == Allocation::uniform) keep_uniform(groups, share);
    if (allocation == Allocation::error) keep_by_error(groups, readers, std::pow(10.0, 9.0 - 13.0 * share));
    keep_one_of_each(groups);
    return size(gone_of(groups));
  };
  Solved solved = solve(choose, size({}), target, tolerance, 40);
  // Where single filters do not lead to the size from this share, they may from one beside it.
  std::vector<FilterGroup> nearest;
  double least = std::numeric_limits<double>::infinity();
  for (const double beside : {0.0, 0.01, -0.01, 0.02, -0.02, 0.04, -0.04}) {
    choose(std::clamp(solved.share + beside, 0.0, 1.0));
    const double error = move_single(groups, size, target, tolerance);
    if (error < least) least = error, nearest = groups;
    if (least <= tolerance) break;
  }
  groups = std::move(nearest);
  solved.size = size(gone_of(groups));
  return solved;
}

filters::Gone gone_of(const std::vector<FilterGroup>& groups) {
  filters::Gone gone;
  for (const FilterGroup& group : groups)
    for (std::size_t i = 0; i < group.channels.size(); ++i)
      if (!group.kept[i]) gone.insert(group.channels[i]);
  return gone;
}

}  // namespace pruning
