// What it costs to run a network in segments, as measured on this machine.
#pragma once

#include "crew.hpp"
#include "segments.hpp"

namespace partitioned {

/// What decisions reckon with that are not to depend on a measurement.
inline constexpr Overheads assumed{.forward = 4.0, .backward = 8.0, .latency = 2.0};

/// Runs a chain of operators on one number as a network and in segments, and a chain of empty jobs from worker to worker.
/// Gradients are on.
Overheads measured_overheads(Crew& crew);

}  // namespace partitioned
