// The network that a run trains: a function with named parameters. Most are a GraphNetwork.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
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

/// Inputs and outputs of a node in a pass.
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

  /// Returns the output for a batch on the network's device; under autograd where gradients are on.
  ///
  /// In training it may be a sparse CSR tensor, [size, classes]: a class that is not stored was left out by
  /// the network, and the loss has no logit for it. Such a network reads the target of the batch as well. No
  /// metrics are taken of a sparse output, which would flatter them; in evaluations the output is whole.
  virtual at::Tensor forward(const Batch& batch, const ForwardContext& context) = 0;

  /// Both return tensors in model order; the handles stay the same for the life of the network. Parameters
  /// are leaf tensors that require gradients; buffers (running statistics) do not.
  virtual std::vector<NamedTensor> parameters() const = 0;
  virtual std::vector<NamedTensor> buffers() const = 0;

  /// Returns the shape of the output without the batch dimension.
  virtual std::vector<std::int64_t> output_shape() const = 0;

  /// Moves parameters and buffers; called before the optimizer exists.
  virtual void to(at::Device device) = 0;

  /// Takes the tensors of the network that it replaces in a running training: each of its parameters and
  /// buffers becomes the handle of that name, so that optimizer and hooks keep theirs. Throws ConfigError,
  /// with nothing changed, where names, shapes or dtypes differ; the default always throws.
  virtual void adopt(const std::vector<NamedTensor>& tensors);

  /// Return where dropout may act, and set who serves these places; null: nobody. The plan, made for
  /// `dropout_places()` or those of a twin, must outlive its use. Random streams are keyed by seed, place,
  /// step and micro-batch. Throws PluginError, with the plan before in place, for a plan of other places.
  virtual DropoutPlaces dropout_places() const { return {}; }
  virtual void set_dropout(const DropoutPlan* plan, std::uint64_t seed);

  /// Calls `tap` in all passes from now on. `owner` is any address of the caller's own: a second tap of an
  /// owner replaces the first. Taps are called in the order of their coming; one that throws fails the pass.
  /// Not within a pass. Returns false where the network has no nodes to show. Nodes within a linear layer
  /// that dropout took over, or evaluates, are shown as that layer alone.
  virtual bool add_tap(const void* owner, NetworkTap tap);
  /// Removes the tap of an owner; does nothing where it has none.
  virtual void remove_tap(const void*) {}

  /// Returns another network of the same structure on the same weights: its parameters and buffers are
  /// tensors of its own on the storage of these, so that activations and gradients of its passes are the
  /// twin's, while both see an update in place of either. The twin has no dropout and no taps; it may outlive
  /// this network. `to` and `adopt` of either end what they share.
  ///
  /// Both may be in a pass at once, each on its own thread, with a dropout plugin of its own; not in training
  /// where they have running statistics, which both would write. An update between a forward pass of the twin
  /// and its backward is not noticed: backward then takes the new weights. Throws PluginError where the
  /// network has no graph; the default always throws.
  virtual std::unique_ptr<Network> twin() const;

  /// Returns the graph behind it, or null: plugins that need one then refuse the model by name.
  virtual const Graph* graph() const { return nullptr; }
};

}  // namespace trainyard
