// What a run trains: a function with named parameters. Most are a GraphNetwork.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/batch.hpp>
#include <trainyard/dropout.hpp>
#include <trainyard/named_tensor.hpp>

namespace trainyard {

struct Graph;

/// How one forward pass runs.
struct ForwardContext {
  bool training = false;
  std::uint64_t step = 0;   ///< of the run, from 0; keys random masks
  std::uint32_t micro = 0;  ///< micro-batch of the step
};

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

  /// The dropout sites, and who serves them; null: nobody. The plugin must outlive its use. `random` is keyed
  /// by seed and re-keyed by site, step and micro-batch.
  virtual std::span<const DropoutSite> dropout_sites() const { return {}; }
  virtual void set_dropout(Dropout* dropout, std::uint64_t seed);

  /// The graph behind it, or null: plugins that need one then refuse the model by name.
  virtual const Graph* graph() const { return nullptr; }
};

}  // namespace trainyard
