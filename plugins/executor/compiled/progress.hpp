// A graph at the shapes of a batch, whose nodes are taken one after another by whoever compiles it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include <trainyard/graph/graph.hpp>

namespace compiled {

/// How many times as many rows as it takes a node gives, by its number: a dropout may make copies at a head
/// (Dropout::apply). Other nodes give as many.
using Copies = std::map<std::size_t, std::int64_t>;

/// The graph outlives it.
class Progress {
 public:
  /// `inputs`: the shapes of the graph's.
  Progress(const trainyard::Graph& graph, const std::vector<std::vector<std::int64_t>>& inputs,
           const Copies& copies = {});
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
  std::vector<std::int64_t> batches_;  ///< by value: the samples that it is of, copies counted
  std::vector<bool> taken_;            ///< nodes
};

}  // namespace compiled
