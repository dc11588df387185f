// Looks for an input that violates a property, by projected gradient descent (Madry et al., ICLR 2018, section
// 2.1) from many points of its box at once.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include <trainyard/network.hpp>
#include <trainyard/random.hpp>

#include "vnnlib.hpp"

namespace gpupoly {

struct Attack {
  std::int64_t restarts = 32, steps = 40;
};

/// Numbers that the program has read and written, in the graph's order.
struct Counterexample {
  std::vector<double> inputs, outputs;
};

/// An input, of single precision, for which the network, in evaluation and by itself, has outputs of which all
/// atoms of the case are true. It lies in the box; but where that is narrower than single precision, its
/// numbers are the nearest there are. `shape` is that of one input. `stop` is asked at each step.
std::optional<Counterexample> falsify(trainyard::Network& network, const std::vector<std::int64_t>& shape,
                                      const Case& of, const Attack& attack,
                                      const trainyard::RandomStream& random,
                                      const std::function<bool()>& stop);

}  // namespace gpupoly
