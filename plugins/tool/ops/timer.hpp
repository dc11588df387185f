// Takes the times of many calls so that what the machine does beside them is the same for all: each round visits all of
// them, in an order of its own, and what counts is the least of the rounds.
#pragma once

#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

#include <trainyard/random.hpp>

namespace ops {

/// Seconds that have passed, and those of processor time that all threads of the process took.
struct Clock {
  std::function<double()> wall, processor;
};

/// Seconds of a call, by rounds.
struct Timing {
  double least = 0.0, lower = 0.0, median = 0.0;  ///< `lower`: the lower quartile
  double share =
      0.0;  ///< processor time over wall time of the round with the least: 1 for one thread that never waits
};

struct Rounds {
  int rounds = 9;
  double least_seconds = 2e-3;        ///< of a round: as many calls as that takes
  std::function<void()> before_call;  ///< unless empty, a round is a call, and this comes before it, untimed
};

/// Returns a timing for each of `calls`; fewer rounds, or nothing, where `stop` says so between two calls.
inline std::vector<Timing> time_calls(const std::vector<std::function<void()>>& calls, const Rounds& how,
                                      const Clock& clock, const trainyard::RandomStream& random,
                                      const std::function<bool()>& stop) {
  std::vector<int> inner(calls.size(), 1);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (stop()) return {};
    calls[i]();
    const double begin = clock.wall();
    calls[i]();
    const double once = std::max(clock.wall() - begin, 1e-9);
    if (!how.before_call) inner[i] = static_cast<int>(std::clamp(how.least_seconds / once, 1.0, 1e6));
  }
  std::vector<std::vector<double>> seconds(calls.size());
  std::vector<Timing> timings(calls.size());
  std::vector<std::size_t> order(calls.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  for (int round = 0; round < how.rounds; ++round) {
    for (std::size_t i = order.size(); i > 1; --i)
      std::swap(order[i - 1], order[random.at(static_cast<std::uint64_t>(round)).below(i, i)]);
    for (const std::size_t i : order) {
      if (stop()) return {};
      if (how.before_call) how.before_call();
      const double processor = clock.processor(), begin = clock.wall();
      for (int call = 0; call < inner[i]; ++call) calls[i]();
      const double wall = std::max(clock.wall() - begin, 1e-9);
      const double each = wall / inner[i];
      if (seconds[i].empty() || each < timings[i].least) {
        timings[i].least = each;
        timings[i].share = (clock.processor() - processor) / wall;
      }
      seconds[i].push_back(each);
    }
  }
  for (std::size_t i = 0; i < calls.size(); ++i) {
    std::sort(seconds[i].begin(), seconds[i].end());
    timings[i].lower = seconds[i][seconds[i].size() / 4];
    timings[i].median = seconds[i][seconds[i].size() / 2];
  }
  return timings;
}

/// Returns whether more than a tenth of the timings have a median of more than 1.2 times their least.
inline bool noisy(const std::vector<Timing>& timings) {
  const auto count = std::count_if(timings.begin(), timings.end(),
                                   [](const Timing& each) { return each.median > 1.2 * each.least; });
  return 10 * count > std::ssize(timings);
}

}  // namespace ops
