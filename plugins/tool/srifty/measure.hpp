// Measures the network of a run on this machine's processor, without a trace in what the run saves.
#pragma once

#include <cstdint>
#include <vector>

#include <trainyard/random.hpp>
#include <trainyard/tool.hpp>

#include "profile.hpp"

namespace srifty {

struct Measurement {
  std::int64_t steps = 20;    ///< whole training steps, after two that are not counted; fewer where the
                              ///< run's budget has no more
  std::int64_t repeats = 20;  ///< of a forward and backward pass, after three that are not counted
  std::vector<std::int64_t>
      batches;  ///< sizes of micro-batches; empty: from an eighth of the run's to twice it
};

/// Trains some steps, which are undone, and times whole steps, then passes with batches of several sizes. After
/// a signal it returns what was measured until then: perhaps no batch size. Throws ConfigError where the run's
/// gradients are not computed by autograd.
Profile measure(trainyard::Workshop& shop, const Measurement& how, const trainyard::RandomStream& random);

/// Returns a digest of the names, shapes and types of the parameters.
std::string model_digest(trainyard::Network& network);

}  // namespace srifty
