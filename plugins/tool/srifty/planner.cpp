#include "planner.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

#include "lib/printed.hpp"
#include "split.hpp"

namespace srifty {
namespace {

using trainyard::lib::printed;

constexpr double gibibyte = 1024.0 * 1024.0 * 1024.0;

/// Adds one cluster for each way to rent `count` machines of a type: on demand, on the spot market, and one on
/// demand beside others on the spot market.
void add_of_one_type(std::size_t machine, int count, bool spot, const Machine& facts,
                     std::vector<Candidate>& all) {
  const bool spot_offered = spot && facts.spot_price;
  if (facts.price) all.push_back({.groups = {{machine, count, 0}}});
  if (spot_offered) all.push_back({.groups = {{machine, count, count}}});
  if (spot_offered && facts.price && count > 1) all.push_back({.groups = {{machine, count, count - 1}}});
}

/// Adds one cluster for each way to rent machines of two types, all of a type in the same way.
void add_of_two_types(const Group& first, const Group& second, bool spot, const Catalogue& catalogue,
                      std::vector<Candidate>& all) {
  for (const bool first_spot : {false, true})
    for (const bool second_spot : {false, true}) {
      const auto offered = [&](const Group& group, bool on_spot) {
        const Machine& facts = catalogue.machines[group.machine];
        return on_spot ? spot && facts.spot_price.has_value() : facts.price.has_value();
      };
      if (!offered(first, first_spot) || !offered(second, second_spot)) continue;
      Candidate made{.groups = {first, second}};
      made.groups[0].spot = first_spot ? first.count : 0;
      made.groups[1].spot = second_spot ? second.count : 0;
      all.push_back(std::move(made));
    }
}

/// Orders by the objective; of equal ones the cluster with fewer machines is first, then the other measure.
std::tuple<double, int, double> rank_of(const Candidate& each, Objective objective) {
  switch (objective) {
    case Objective::min_cost: return {each.cost, each.machines, each.seconds};
    case Objective::min_time: return {each.seconds, each.machines, each.cost};
    case Objective::min_cost_time: return {each.cost * each.seconds, each.machines, each.cost};
  }
  return {};
}

/// Marks usable candidates that no other usable one beats in time and cost.
void mark_front(std::vector<Candidate>& candidates) {
  std::vector<Candidate*> usable;
  for (Candidate& each : candidates)
    if (each.usable()) usable.push_back(&each);
  std::stable_sort(usable.begin(), usable.end(), [](const Candidate* a, const Candidate* b) {
    return std::tie(a->seconds, a->cost, a->machines) < std::tie(b->seconds, b->cost, b->machines);
  });
  double cheapest = std::numeric_limits<double>::infinity();
  for (Candidate* each : usable) {
    each->pareto = each->cost < cheapest;
    cheapest = std::min(cheapest, each->cost);
  }
}

}  // namespace

Planner::Planner(const Job& job, const Catalogue& catalogue, const std::vector<Profile>& profiles,
                 const std::vector<Links>& links)
    : job_(job), catalogue_(catalogue) {
  for (const Links& each : links) links_[each.name] = &each;
  for (const Profile& each : profiles) {
    std::vector<BatchTimes::Point> forward, backward;
    for (const BatchProfile& batch : each.batches) {
      forward.push_back({static_cast<double>(batch.samples), batch.forward});
      backward.push_back({static_cast<double>(batch.samples), batch.backward});
    }
    Device device{&each, BatchTimes(forward), BatchTimes(backward), {}};
    for (const double size : job.buckets) device.buckets[size] = cut_into_buckets(each.gradients, size);
    devices_.insert_or_assign(each.device, std::move(device));
  }
}

std::vector<Candidate> Planner::clusters() const {
  std::vector<Candidate> all;
  const std::vector<Machine>& machines = catalogue_.machines;
  for (std::size_t i = 0; i < machines.size(); ++i) {
    const std::size_t before = all.size();
    for (int count = 1; count <= job_.max_machines; ++count)
      add_of_one_type(i, count, job_.allow_spot, machines[i], all);
    if (all.size() == before) {
      all.push_back({.groups = {{i, 1, 0}}});
      all.back().unusable = machines[i].spot_price ? "offered as spot only" : "not offered";
    }
  }
  for (std::size_t i = 0; job_.allow_mixed && i < machines.size(); ++i)
    for (std::size_t k = i + 1; k < machines.size(); ++k) {
      if (machines[i].region != machines[k].region) continue;
      for (int first = 1; first < job_.max_machines; ++first)
        for (int second = 1; first + second <= job_.max_machines; ++second)
          add_of_two_types({i, first, 0}, {k, second, 0}, job_.allow_spot, catalogue_, all);
    }
  for (Candidate& each : all)
    for (const Group& group : each.groups) {
      each.machines += group.count;
      each.ranks += group.count * machine(group).count;
    }
  return all;
}

const Planner::Device* Planner::device_of(const Group& group) const {
  const auto found = devices_.find(machine(group).accelerator);
  return found == devices_.end() ? nullptr : &found->second;
}

std::string Planner::fit(Candidate& candidate) const {
  for (const Group& group : candidate.groups) {
    const Machine& facts = machine(group);
    if (!job_.regions.empty() &&
        std::find(job_.regions.begin(), job_.regions.end(), facts.region) == job_.regions.end())
      return "region " + (facts.region.empty() ? std::string("not said") : facts.region);
    if (device_of(group) == nullptr) return "no profile of " + facts.accelerator;
    const double needed = device_of(group)->profile->memory(0.0);
    if (facts.memory_bytes > 0.0 && needed > facts.memory_bytes)
      return printed("memory: weights alone need %.1f GiB of %.1f", needed / gibibyte,
                     facts.memory_bytes / gibibyte);
  }
  return candidate.groups.size() == 1 ? fit_equal_shares(candidate) : fit_shares_by_speed(candidate);
}

std::string Planner::fit_equal_shares(Candidate& candidate) const {
  if (job_.batch % candidate.ranks != 0)
    return printed("batch %lld is no multiple of %d ranks", static_cast<long long>(job_.batch),
                   candidate.ranks);
  const std::int64_t share = job_.batch / candidate.ranks;
  candidate.shares.assign(static_cast<std::size_t>(candidate.ranks), share);
  const Profile& profile = *device_of(candidate.groups.front())->profile;
  const double room = machine(candidate.groups.front()).memory_bytes;
  if (room == 0.0) return {};
  for (std::int64_t micros = 1; micros <= share; ++micros) {
    const std::int64_t samples = share / micros;
    if (share % micros != 0 || profile.memory(static_cast<double>(samples)) > room) continue;
    candidate.micros = static_cast<int>(micros);
    return {};
  }
  return printed("memory: one sample needs %.1f GiB of %.1f", profile.memory(1.0) / gibibyte,
                 room / gibibyte);
}

std::string Planner::fit_shares_by_speed(Candidate& candidate) const {
  std::vector<const Device*> ranks;
  std::vector<std::int64_t> most;
  for (const Group& group : candidate.groups) {
    const Device* const device = device_of(group);
    const Profile& profile = *device->profile;
    const double room = machine(group).memory_bytes;
    std::int64_t cap = job_.batch;
    if (room > 0.0 && profile.sample_bytes > 0.0)
      cap = std::min(cap, static_cast<std::int64_t>((room - profile.memory(0.0)) / profile.sample_bytes));
    if (cap < 1) return "memory: no room for a sample on " + machine(group).type;
    for (int i = 0; i < group.count * machine(group).count; ++i) {
      ranks.push_back(device);
      most.push_back(cap);
    }
  }
  const auto seconds = [&](std::size_t rank, double samples) {
    return ranks[rank]->forward.seconds(samples) + ranks[rank]->backward.seconds(samples);
  };
  auto shares = split_batch(job_.batch, ranks.size(), seconds, most);
  if (!shares) return "memory or batch: the ranks cannot share the batch";
  candidate.shares = *std::move(shares);
  return {};
}

StepParts Planner::parts_of(const Group& group, double share, const Candidate& candidate,
                            double quantile) const {
  const Device& device = *device_of(group);
  const Profile& profile = *device.profile;
  // The slowest of n ranks is at a quantile where each of them is at the n-th root of it.
  const double slower = quantile_of(profile.steps, std::pow(quantile, 1.0 / candidate.ranks));
  const double micro = share / candidate.micros;
  StepParts parts{.forward = slower * device.forward.seconds(micro),
                  .backward = slower * device.backward.seconds(micro),
                  .rest = slower * profile.rest,
                  .micros = candidate.micros};
  (profile.input_overlaps ? parts.input : parts.rest) += profile.input * share;
  return parts;
}

double Planner::step(const Candidate& candidate, double bucket, double quantile) const {
  std::vector<StepParts> parts;
  std::size_t rank = 0;
  for (const Group& group : candidate.groups) {
    const std::size_t end = rank + static_cast<std::size_t>(group.count * machine(group).count);
    for (std::int64_t before = -1; rank < end; before = candidate.shares[rank++])
      if (candidate.shares[rank] != before)
        parts.push_back(parts_of(group, static_cast<double>(candidate.shares[rank]), candidate, quantile));
  }
  return step_seconds(parts, device_of(candidate.groups.front())->buckets.at(bucket),
                      [&](double bytes) { return sum_seconds(candidate, bytes, quantile); });
}

double Planner::sum_seconds(const Candidate& candidate, double bytes, double quantile) const {
  const std::string& name = machine(candidate.groups.front()).link;
  const bool alike = std::all_of(candidate.groups.begin(), candidate.groups.end(),
                                 [&](const Group& each) { return machine(each).link == name; });
  const auto measured = links_.find(name);
  if (alike && measured != links_.end()) return measured->second->seconds(candidate.ranks, bytes, quantile);
  double bandwidth = std::numeric_limits<double>::infinity();
  for (const Group& group : candidate.groups) {
    const Machine& facts = machine(group);
    if (candidate.machines > 1 || facts.inside == 0.0) bandwidth = std::min(bandwidth, facts.network);
    if (facts.count > 1 && facts.inside > 0.0) bandwidth = std::min(bandwidth, facts.inside);
  }
  return ring_seconds(candidate.ranks, bytes, {job_.latency, bandwidth});
}

void Planner::judge(Candidate& candidate) const {
  if (!candidate.usable()) return;
  candidate.unusable = fit(candidate);
  if (!candidate.usable()) return;
  double seconds = std::numeric_limits<double>::infinity();
  for (const double bucket : job_.buckets) {
    const double with = step(candidate, bucket, job_.quantile);
    if (with >= seconds) continue;
    seconds = with;
    candidate.bucket = bucket;
  }
  candidate.p50 = step(candidate, candidate.bucket, 0.5);
  candidate.p90 = step(candidate, candidate.bucket, 0.9);
  double price = 0.0;
  for (const Group& group : candidate.groups) {
    const Machine& facts = machine(group);
    price +=
        group.spot * facts.spot_price.value_or(0.0) + (group.count - group.spot) * facts.price.value_or(0.0);
  }
  candidate.overhead = expected_overhead(candidate.spot_machines(), job_.spot);
  const double steps = job_.samples / static_cast<double>(job_.batch);
  candidate.seconds = steps * seconds * (1.0 + candidate.overhead) + job_.startup;
  candidate.cost = candidate.seconds / 3600.0 * price;
  candidate.throughput = static_cast<double>(job_.batch) / (seconds * (1.0 + candidate.overhead));
  candidate.over = limits_exceeded(candidate);
}

std::string Planner::limits_exceeded(const Candidate& candidate) const {
  std::string over;
  const auto add = [&](const std::string& text) { over += (over.empty() ? "" : ", ") + text; };
  if (job_.max_seconds && candidate.seconds > *job_.max_seconds)
    add(printed("time %.4g h > %.4g h", candidate.seconds / 3600.0, *job_.max_seconds / 3600.0));
  if (job_.max_cost && candidate.cost > *job_.max_cost)
    add(printed("cost %.4g USD > %.4g USD", candidate.cost, *job_.max_cost));
  if (job_.min_throughput && candidate.throughput < *job_.min_throughput)
    add(printed("%.4g samples/s < %.4g", candidate.throughput, *job_.min_throughput));
  return over;
}

void Planner::choose(Plan& plan) const {
  mark_front(plan.candidates);
  for (std::size_t i = 0; i < plan.candidates.size(); ++i) {
    const Candidate& each = plan.candidates[i];
    if (!each.feasible()) continue;
    if (!plan.chosen ||
        rank_of(each, job_.objective) < rank_of(plan.candidates[*plan.chosen], job_.objective))
      plan.chosen = i;
  }
  if (!plan.chosen) relax(plan);
}

/// For each limit: the usable cluster that needs the least of it with the others kept. Where none keeps the
/// others, the cluster whose limits are over by the smallest factor altogether.
void Planner::relax(Plan& plan) const {
  const auto time_kept = [&](const Candidate& c) {
    return !job_.max_seconds || c.seconds <= *job_.max_seconds;
  };
  const auto cost_kept = [&](const Candidate& c) { return !job_.max_cost || c.cost <= *job_.max_cost; };
  const auto rate_kept = [&](const Candidate& c) {
    return !job_.min_throughput || c.throughput >= *job_.min_throughput;
  };
  const auto add = [&](const char* limit, auto kept, auto need) {
    std::optional<std::size_t> best;
    for (std::size_t i = 0; i < plan.candidates.size(); ++i) {
      const Candidate& each = plan.candidates[i];
      if (each.usable() && kept(each) && (!best || need(each) < need(plan.candidates[*best]))) best = i;
    }
    if (best) plan.relaxations.push_back({limit, *best});
  };
  if (job_.max_seconds)
    add(
        "max_hours", [&](const Candidate& c) { return cost_kept(c) && rate_kept(c); },
        [](const Candidate& c) { return c.seconds; });
  if (job_.max_cost)
    add(
        "max_cost", [&](const Candidate& c) { return time_kept(c) && rate_kept(c); },
        [](const Candidate& c) { return c.cost; });
  if (job_.min_throughput)
    add(
        "min_throughput", [&](const Candidate& c) { return time_kept(c) && cost_kept(c); },
        [](const Candidate& c) { return -c.throughput; });
  if (!plan.relaxations.empty()) return;
  add(
      "several limits", [](const Candidate&) { return true; },
      [&](const Candidate& c) {
        double factor = 1.0;
        if (job_.max_seconds) factor *= std::max(1.0, c.seconds / *job_.max_seconds);
        if (job_.max_cost) factor *= std::max(1.0, c.cost / *job_.max_cost);
        if (job_.min_throughput) factor *= std::max(1.0, *job_.min_throughput / c.throughput);
        return factor;
      });
}

}  // namespace srifty
