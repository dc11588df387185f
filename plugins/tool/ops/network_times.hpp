// The times of a run's network: each node by itself, all of them together, and what the latency models say.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <trainyard/graph/network.hpp>

#include "latency.hpp"
#include "timer.hpp"

namespace ops {

/// The two passes whose times are taken.
struct Seconds {
  double forward = 0.0, training = 0.0;  ///< training: forward and backward
};

struct NodeTimes {
  std::string name, op;
  std::optional<Operator> point;  ///< what it is among the sweeps' operators; nothing for others
  bool first = false;             ///< nobody wants the gradient of its input
  Seconds measured;               ///< by itself
  std::optional<Seconds> predicted;
};

/// Returns what a node is in a training pass; only layers with weights save something where nobody wants the gradient of
/// their input. The node is an operator of the sweeps.
Operator in_training(const NodeTimes& node);

struct NetworkTimes {
  std::vector<NodeTimes> nodes;  ///< in the order of the graph
  Seconds measured;              ///< of the whole network
  Seconds sum;                   ///< of the nodes, each by itself
  Seconds predicted;             ///< sum of predictions; a node without one has its own time
  std::size_t without_prediction = 0;
  bool noisy = false;  ///< medians are far from the least
};

/// Returns the operator that a node is for a batch of that size, or nothing where the sweeps have none like it.
std::optional<Operator> operator_of(const trainyard::Graph& graph, const trainyard::Node& node,
                                    std::int64_t batch);

/// Times all nodes and the whole network in the same rounds. Empty where `stop` says so.
NetworkTimes time_network(trainyard::GraphNetwork& network, const trainyard::Batch& batch,
                          const Rounds& rounds, const trainyard::RandomStream& random,
                          const std::function<bool()>& stop);

/// Fills in what the models say.
void predict(NetworkTimes& times, const Latencies& latencies);

}  // namespace ops
