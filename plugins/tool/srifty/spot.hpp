// What revocations of spot machines cost: checkpoints, lost work, restarts.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

namespace srifty {

/// A scenario: none of it is a fact about a provider.
struct SpotScenario {
  double revocations_per_hour = 0.0;  ///< of one machine
  double checkpoint_seconds = 30.0;   ///< that a checkpoint stops the training for
  double restart_seconds = 180.0;     ///< from a revocation until all train again
};

/// Returns the mean seconds between revocations of any of `machines` machines.
inline double seconds_between(double machines, const SpotScenario& scenario) {
  return 3600.0 / (machines * scenario.revocations_per_hour);
}

/// Returns the seconds of work between checkpoints that cost least (Young, CACM 1974).
inline double best_interval(double machines, const SpotScenario& scenario) {
  return std::sqrt(2.0 * scenario.checkpoint_seconds * seconds_between(machines, scenario));
}

/// Returns the expected time lost as a share of the work, to first order: checkpoints, half an interval and a
/// restart for each revocation.
inline double expected_overhead(double machines, const SpotScenario& scenario) {
  if (machines <= 0.0 || scenario.revocations_per_hour <= 0.0) return 0.0;
  const double interval = best_interval(machines, scenario), between = seconds_between(machines, scenario);
  return scenario.checkpoint_seconds / interval + (interval / 2.0 + scenario.restart_seconds) / between;
}

/// Plays `work` seconds of training through, with revocations drawn by `seed`, and returns the time lost as a
/// share of the work. A revocation takes the work since the last checkpoint that was finished; one during a
/// restart begins that restart again. Infinite where a thousand times the work does not end it.
inline double simulated_overhead(double machines, const SpotScenario& scenario, double work,
                                 std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::exponential_distribution<double> draw(1.0 / seconds_between(machines, scenario));
  const double interval = best_interval(machines, scenario);
  double wall = 0.0, saved = 0.0, next = draw(generator);
  while (saved < work) {
    if (wall > 1e3 * work) return std::numeric_limits<double>::infinity();
    const double segment = std::min(interval, work - saved);
    const double whole = segment + (saved + segment < work ? scenario.checkpoint_seconds : 0.0);
    if (wall + whole <= next) {
      wall += whole;
      saved += segment;
      continue;
    }
    wall = next + scenario.restart_seconds;  // or later, where the next revocation comes before
    next += draw(generator);
  }
  return wall / work - 1.0;
}

}  // namespace srifty
