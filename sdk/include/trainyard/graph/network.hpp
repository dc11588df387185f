// Executes a Graph with LibTorch, under autograd: nodes are compiled once to a flat list of calls with their
// attributes resolved, so that a pass costs what the hand-written one does.
#pragma once

#include <memory>

#include <trainyard/graph/graph.hpp>
#include <trainyard/network.hpp>

namespace trainyard {

/// One forward pass at a time. Activations are let go after their last use; autograd keeps what backward
/// needs.
class GraphNetwork final : public Network {
 public:
  /// Takes a graph whose shapes are inferred, and its tensors: they become the parameters, not copies. Throws
  /// ConfigError for an operator that it does not know, and for a graph of several outputs.
  explicit GraphNetwork(Graph graph);
  ~GraphNetwork() override;

  at::Tensor forward(const Batch& batch, const ForwardContext& context) override;
  std::vector<NamedTensor> parameters() const override;
  std::vector<NamedTensor> buffers() const override;
  std::vector<std::int64_t> output_shape() const override;
  void to(at::Device device) override;
  void adopt(const std::vector<NamedTensor>& tensors) override;
  DropoutPlaces dropout_places() const override;
  void set_dropout(Dropout* dropout, std::uint64_t seed) override;
  bool set_tap(const NetworkTap& tap) override;
  const Graph* graph() const override;

 private:
  struct Program;
  std::unique_ptr<Program> program_;
};

}  // namespace trainyard
