// The sweeps: one dimension of an operator at a time, from a base point, and points at random for the latency model.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <trainyard/random.hpp>

#include "curve.hpp"
#include "database.hpp"

namespace ops {

/// The base point: a convolution of 64 channels, 3x3, on 28x28, batch 1.
struct Sweep {
  std::string name;       ///< "cout"
  std::string dimension;  ///< what changes, a column of the database; empty: several do
  std::vector<Operator> points;
  Conditions conditions;
};

/// Returns the sweeps of all dimensions. `threads`: of the machine, for what is also run on all of them.
std::vector<Sweep> dimension_sweeps(std::int64_t threads, bool flushes);

/// Returns the points that are timed beside each sweep, to see by whether the machine stays the same.
const std::vector<Operator>& sentinels();

/// Draws the operators of convolutional networks: sizes up to 56, channels from 4 to 256 by their logarithm.
/// `op`: "conv", "linear", "depthwise", or a block or an activation.
Operator drawn(const std::string& op, const trainyard::RandomStream& random, std::uint64_t number);

/// Draws one near another: channels times 0.5 to 1.2.
Operator near(const Operator& point, const trainyard::RandomStream& random, std::uint64_t number);

/// Returns the times of a sweep over its dimension; empty where it has none, or was not measured.
Curve curve_of(const Database& database, const Sweep& sweep);

/// Returns a column of the database by its name: "cout".
std::int64_t value_of(const Operator& point, const std::string& dimension);

/// How a sweep went.
struct Quality {
  bool whole = false;  ///< it was not stopped
  bool noisy = false;  ///< medians are far from the least
  double moved = 0.0;  ///< the most that the least time of a sentinel moved since the first sweep
  double share =
      0.0;  ///< the most processor time over wall time, of points with one thread that took 20 us or more
};

/// Times the points that the database does not have yet, or all where `again` says so, and adds them. Points are grouped by their threads, whose pools it
/// sets. A point that is not to be had on this processor is left out, and its reason given to `without`.
Quality measure(Database& database, const Sweep& sweep, const Rounds& rounds, bool again,
                const trainyard::RandomStream& random, const std::function<bool()>& stop,
                const std::function<void(const std::string&)>& without);

}  // namespace ops
