// What a run trains: a function with named parameters. Most are a GraphNetwork.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/batch.hpp>
#include <trainyard/contract.hpp>
#include <trainyard/dropout.hpp>
#include <trainyard/named_tensor.hpp>

TRAINYARD_CONTRACT("network.hpp");

namespace trainyard {

struct Graph;

/// What a node of a network took and gave in a pass.
struct NodeActivity {
  std::string_view node;  ///< its name: "fc1"
  std::string_view op;    ///< ONNX operator: "Relu"
  std::span<const at::Tensor> inputs, outputs;
};
/// Called after each node, on the thread of the pass; must not keep the autograd graph (detach).
using NetworkTap = std::function<void(const NodeActivity&)>;

class Network {
 public:
  virtual ~Network() = default;

  /// The output for the inputs of a batch on the network's device; under autograd where gradients are on.
  virtual at::Tensor forward(const Batch& batch, const ForwardContext& context) = 0;

  /// Parameters are leaf tensors that require gradients; buffers (running statistics) do not. In model order;
  /// the handles stay the same for the life of the network.
  virtual std::vector<NamedTensor> parameters() const = 0;
  virtual std::vector<NamedTensor> buffers() const = 0;

  /// Shape of the output without the batch dimension.
  virtual std::vector<std::int64_t> output_shape() const = 0;

  /// Moves parameters and buffers; called before the optimizer exists.
  virtual void to(at::Device device) = 0;

  /// Takes the tensors of the network that it replaces in a running training: each of its parameters and
  /// buffers becomes the handle of that name, so that optimizer and hooks keep theirs. Throws ConfigError,
  /// with nothing changed, where names, shapes or dtypes differ; by default always.
  virtual void adopt(const std::vector<NamedTensor>& tensors);

  /// Where dropout may act, and who serves these places; null: nobody. The plugin, opened with
  /// `dropout->chosen(dropout_places())`, must outlive its use. Random streams are keyed by seed, place, step
  /// and micro-batch.
  virtual DropoutPlaces dropout_places() const { return {}; }
  virtual void set_dropout(Dropout* dropout, std::uint64_t seed);

  /// Who looks on at the passes from now on; an empty tap: nobody. False where the network has no nodes to
  /// show. Nodes within a linear layer that dropout took over, or evaluates, are shown as that layer alone.
  virtual bool set_tap(const NetworkTap&) { return false; }

  /// The graph behind it, or null: plugins that need one then refuse the model by name.
  virtual const Graph* graph() const { return nullptr; }
};

}  // namespace trainyard
