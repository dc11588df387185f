// A graph at the shapes of a batch, whose nodes are taken one after another by whoever compiles it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <trainyard/graph/graph.hpp>

namespace compiled {

/// The graph outlives it.
class Progress {
 public:
  /// `inputs`: the shapes of the graph's.
  Progress(const trainyard::Graph& graph, const std::vector<std::vector<std::int64_t>>& inputs);
  virtual ~Progress() = default;
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  const trainyard::Graph& graph() const { return graph_; }
  const trainyard::Node& node(std::size_t number) const { return graph_.nodes[number]; }
  /// No rule is asked for that node any more.
  void take(std::size_t node) { taken_[node] = true; }
  bool is_taken(std::size_t node) const { return taken_[node]; }
  std::vector<std::int64_t> dims_of(trainyard::ValueId id) const;

  /// Whether a value of floats has been made, so that what comes next may read it.
  virtual bool has_floats(trainyard::ValueId id) const = 0;
  /// Of one that has been made.
  virtual bool wants_gradient_of(trainyard::ValueId id) const = 0;

 private:
  const trainyard::Graph& graph_;
  std::int64_t batch_ = 0;
  std::vector<bool> taken_;  ///< nodes
};

}  // namespace compiled
