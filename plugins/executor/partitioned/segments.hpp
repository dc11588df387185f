// Nodes that one worker runs behind each other, forward and backward, as one.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <trainyard/graph/graph.hpp>

#include "../../shared/partition/machine.hpp"
#include "step_graph.hpp"

namespace partitioned {

/// Where each node runs.
struct Placement {
  std::vector<partition::Cluster> forward, backward;
};

struct Segment {
  std::vector<std::size_t> nodes;  ///< each reads the one before alone
  partition::Cluster forward = 0, backward = 0;
};

/// Joins chains, as far as both passes of their nodes are in the same clusters: what has no branch has nothing to run at once, and
/// less is to be called. Those that are `apart` stay alone, as do readers of one weight from each other, so that terms of a
/// gradient are added one by one. Ascending by their first nodes.
std::vector<Segment> segments_of(const trainyard::Graph& graph, const Dependences& dependences,
                                 const Placement& placement, const std::vector<bool>& apart);

/// Nodes that run one after another in their order whatever they read, as they write the same running statistics, or share a dropout.
std::vector<std::pair<std::size_t, std::size_t>> ordered_pairs(const trainyard::Graph& graph,
                                                               const std::vector<bool>& apart);

/// What a worker does beside operators, in microseconds.
struct Overheads {
  double forward = 0.0, backward = 0.0;  ///< of a segment
  double latency = 0.0;                  ///< from one worker to another
};

/// Returns a step as tasks: of n segments, i is that one forward, n the loss, which waits for all of forward and all of backward
/// for it, n + 1 + i backward.
partition::Tasks tasks_of(const std::vector<Segment>& segments, const StepGraph& step, const Times& times,
                          const Overheads& overheads);

/// Returns the time of the segments that each cluster has, forward and backward, with the loss in the first.
std::vector<double> work_of(const std::vector<Segment>& segments, const StepGraph& step, const Times& times,
                            std::size_t clusters);

/// Returns how long a step takes where each segment is a task.
double predicted(const std::vector<Segment>& segments, const StepGraph& step, const Times& times,
                 const Overheads& overheads, std::size_t clusters);

}  // namespace partitioned
