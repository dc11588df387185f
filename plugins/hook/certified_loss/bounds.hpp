// Bounds of a network's outputs over boxes of inputs, under autograd, so that training can make them tighter:
// intervals (IBP, Gowal et al. 2018, arXiv 1810.12715, section 3), and linear forms of the output that are
// substituted back to the input over relaxations that intervals gave (CROWN-IBP, Zhang et al., ICLR 2020, arXiv
// 1906.06316, section 3). They are rounded to nearest: good to train with, no proof.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/graph/graph.hpp>

namespace certified_loss {

/// Lower and upper ends, each [batch, ...].
struct Box {
  at::Tensor lower, upper;
};

class Bounds {
 public:
  /// Of a graph with one input and one output [batch, classes], shapes inferred, which must outlive it. Weights are
  /// read at each pass; dropout is left out, and normalisation over batches is that of evaluations. Throws ConfigError
  /// that names the first node without bounds.
  explicit Bounds(const trainyard::Graph& graph);
  ~Bounds();

  const trainyard::Graph& graph() const { return graph_; }

  /// Of the output. What lies between is kept for `margins`.
  Box intervals(const Box& input);

  /// Lower bounds of output[target] - output[j], [batch, classes], over the box of the last `intervals`; 0 for the
  /// target itself. `target`: [batch], long.
  at::Tensor margins(const at::Tensor& target);

 private:
  struct Step;
  struct Rows;

  Box interval(const Step& step, const std::vector<Box>& boxes) const;
  Box normalized(const Step& step, const Box& x) const;
  void end(trainyard::ValueId id, const Box& box, Rows& rows) const;
  void relu(const Step& step, Rows& rows) const;
  void affine(const Step& step, Rows& rows) const;

  const trainyard::Graph& graph_;
  std::vector<Step> steps_;
  std::vector<Box> boxes_;  ///< by value of the graph
};

}  // namespace certified_loss
