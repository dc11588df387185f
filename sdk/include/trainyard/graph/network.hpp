// Executes a Graph with LibTorch, under autograd: nodes are compiled once to a flat list of calls with their
// attributes resolved, so that a pass costs what the hand-written one does.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include <trainyard/contract.hpp>
#include <trainyard/doubles.hpp>
#include <trainyard/graph/graph.hpp>
#include <trainyard/network.hpp>

TRAINYARD_CONTRACT("graph/network.hpp");

namespace trainyard {

/// Runs one forward pass at a time. Activations are let go after their last use; autograd keeps what backward
/// needs.
class GraphNetwork final : public Network, public ComputesInDoubles {
 public:
  /// Takes a graph whose shapes are inferred, and its tensors: they become the parameters, not copies. Throws
  /// ConfigError for an operator that it does not know, and for a graph without outputs.
  explicit GraphNetwork(Graph graph);
  ~GraphNetwork() override;

  /// Returns the output. Throws ConfigError, as output_shape does, where the graph has several outputs.
  at::Tensor forward(const Batch& batch, const ForwardContext& context) override;
  /// Returns the outputs for inputs, both in the graph's order; one that is an input is given as it came.
  std::vector<at::Tensor> forward_all(const std::vector<at::Tensor>& inputs, const ForwardContext& context);
  /// Returns the outputs of the node with that number in the graph, for its inputs, as the pass of `context`
  /// computes them: with the dropout of its places. For executors that compute the other nodes themselves;
  /// the pass itself differs where `runs_by_nodes` is false for it. An input that is not given is undefined.
  std::vector<at::Tensor> run_node(std::size_t node, std::span<const at::Tensor> inputs,
                                   const ForwardContext& context);
  /// Returns whether a pass only runs its nodes one after another: nobody taps it, and no dropout computes
  /// layers or masks weights.
  bool runs_by_nodes(const ForwardContext& context) const;
  /// Returns whether a dropout serves places of it.
  bool has_dropout() const;
  /// Returns the numbers of the nodes at which the dropout acts in the pass of `context`, in their order: on
  /// what they give, on the weights of their attention, on the states of their cells.
  std::vector<std::size_t> dropped_nodes(const ForwardContext& context) const;
  std::vector<NamedTensor> parameters() const override;
  std::vector<NamedTensor> buffers() const override;
  std::vector<std::int64_t> output_shape() const override;
  void to(at::Device device) override;
  /// From then on nodes that cast to single precision cast to double.
  void to_doubles() override;
  void adopt(const std::vector<NamedTensor>& tensors) override;
  DropoutPlaces dropout_places() const override;
  void set_dropout(const DropoutPlan* plan, std::uint64_t seed) override;
  bool add_tap(const void* owner, NetworkTap tap) override;
  void remove_tap(const void* owner) override;
  std::unique_ptr<Network> twin() const override;
  const Graph* graph() const override;

 private:
  struct Program;
  std::unique_ptr<Program> program_;
};

}  // namespace trainyard
