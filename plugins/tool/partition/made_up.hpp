// Made-up graphs: a growing network whose edges prefer nodes with many, and R-MAT.
#pragma once

#include <functional>

#include "../../shared/partition/graph.hpp"

namespace partition {

enum class MadeUp : std::uint8_t { ba, rmat };

/// Runs task(0) to task(tasks - 1), on several threads perhaps.
using RunTasks = std::function<void(std::size_t tasks, const std::function<void(std::size_t)>& task)>;

/// Makes a graph whose weights are lognormal(0, 1); the same on any number of threads. `ba` (Barabasi and Albert, "Emergence of
/// scaling in random networks", Science 1999): nodes one after the other, each with edges to `degree` earlier ones,
/// drawn by their degrees; one that is drawn twice counts once. `rmat` (Chakrabarti, Zhan and Faloutsos, "R-MAT: a
/// recursive model for graph mining", SDM 2004) with 0.57, 0.19, 0.19, 0.05 and nodes a power of 2, whose numbers are
/// mixed: `nodes` x `degree` edges, of which some are the same and some lead from a node to itself.
Graph make_up(MadeUp which, std::size_t nodes, std::size_t degree, std::uint64_t seed, const RunTasks& run);

}  // namespace partition
