// The part of the network that is a stage, on one set of weights, and the gradients of the passes that read them.
#pragma once

#include <vector>

#include <trainyard/forward_context.hpp>
#include <trainyard/graph/network.hpp>

#include "wire.hpp"

namespace wavelet {

using namespace trainyard;

/// One thread at a time.
class Part {
 public:
  /// On the weights of the graph, or on copies of them. Running statistics are those of the graph in any case.
  Part(const Graph& graph, bool copies);

  /// Copies the weights of the network that the part is of.
  void read(const Network& network);
  /// Under autograd. `is_first`: the inputs are those of the network, and get no gradients.
  Tensors forward(const Tensors& inputs, const ForwardContext& context, bool is_first);
  /// Adds to the gradients of the weights; gives those of the inputs, undefined where an input has none. `given`: those
  /// of the outputs.
  Tensors backward(const Tensors& inputs, const Tensors& outputs, const Tensors& given);
  /// The sums over the passes since the last call, in the order of the graph's parameters, until the next pass; undefined
  /// where there is none.
  Tensors take_gradients();

 private:
  GraphNetwork network_;
  Tensors leaves_;  ///< its parameters
  Tensors sums_;
  std::vector<bool> has_;  ///< of each, whether a pass has added to it
};

}  // namespace wavelet
