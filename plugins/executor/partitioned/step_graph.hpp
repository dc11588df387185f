// The graph of a training step: each node of a network forward and backward, with the loss between.
#pragma once

#include <cstdint>
#include <vector>

#include <trainyard/graph/graph.hpp>

#include "../../shared/partition/graph.hpp"
#include "times.hpp"

namespace partitioned {

/// What an edge weighs, by which the rules cut.
enum class Weights : std::uint8_t {
  time,   ///< the time of the node that it leads to, which all edges to that node share
  bytes,  ///< the tensor that goes along it
  count,  ///< 1
};

/// What each node reads of others, and who reads what it makes. Inputs of the batch are made by nobody.
struct Dependences {
  explicit Dependences(const trainyard::Graph& graph);

  std::vector<std::vector<std::size_t>>
      producers;              ///< nodes whose outputs a node reads, each once, ascending
  std::vector<int> maker;     ///< node that makes a value, or -1
  std::vector<bool> tracked;  ///< a node through which a gradient comes to some weight
  std::size_t output;         ///< node that makes the network's output
};

/// A network of n nodes has 2n + 1 passes: node i forward is pass i, the loss pass n, node i backward pass n + 1 + i, at no
/// cost where no gradient comes through it.
class StepGraph {
 public:
  /// Its shapes are inferred; the batch has so many samples. Throws ConfigError where no node makes the output.
  StepGraph(const trainyard::Graph& graph, const Times& times, std::int64_t samples, Weights weights);

  std::size_t nodes() const { return nodes_; }
  std::size_t loss() const { return nodes_; }
  std::size_t backward_of(std::size_t node) const { return nodes_ + 1 + node; }

  /// As tasks: what has to be done ahead of what.
  const partition::Graph& passes() const { return passes_; }
  /// As the rules cut it: a node is both of its passes, as its backward reads what its forward has left in the cache. The
  /// loss is node n, the inputs of the batch are behind it.
  const partition::Graph& folded() const { return folded_; }
  const Dependences& dependences() const { return dependences_; }

 private:
  void add_passes(const Times& times);
  void add_folded(const trainyard::Graph& graph, const Times& times, std::int64_t samples, Weights weights);

  Dependences dependences_;
  std::size_t nodes_;
  partition::Graph passes_, folded_;
};

/// Makes a graph of edges, weights (none: 1 each) and the costs of its nodes.
partition::Graph graph_of(std::vector<partition::Edge> edges, std::vector<double> weights,
                          std::vector<double> costs);

}  // namespace partitioned
