// What of a graph no input changes: weights, and what the network computes of weights alone, as the sums of a transform.
#pragma once

#include <map>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/graph/graph.hpp>
#include <trainyard/named_tensor.hpp>

/// Returns the graph with these tensors in the place of its own of their names.
trainyard::Graph with_tensors(trainyard::Graph graph, const std::vector<trainyard::NamedTensor>& tensors);

class Constants {
 public:
  /// Computes them, of a graph whose shapes are inferred and with the weights that it holds.
  explicit Constants(const trainyard::Graph& graph);

  bool contains(trainyard::ValueId value) const { return tensors_.contains(value); }
  /// Returns one of them. Throws std::out_of_range for another.
  const at::Tensor& at(trainyard::ValueId value) const { return tensors_.at(value); }

 private:
  std::map<trainyard::ValueId, at::Tensor> tensors_;
};

/// Returns the tensors with what the network computes of them alone, and all else that an input meets, in place of what only that is
/// computed of: "fc1.weight" for the matrices that it is the sum of.
std::vector<trainyard::NamedTensor> materialized(const trainyard::Graph& graph,
                                                 const std::vector<trainyard::NamedTensor>& tensors);
