// What of a graph no input changes: weights, and what the network computes of weights alone, as the sums of a transform.
#pragma once

#include <map>

#include <ATen/core/Tensor.h>

#include <trainyard/graph/graph.hpp>

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
