// scorer/1: says how much the weights, filters or input channels of a layer matter. It is a part: `trainyard prune`
// has it as an option (PluginList<Scorer>), and no table of the run file is its own.
#pragma once

#include <cstdint>
#include <string>

#include <ATen/core/Tensor.h>

#include <trainyard/contract.hpp>
#include <trainyard/plugin.hpp>
#include <trainyard/random.hpp>

TRAINYARD_CONTRACT("scorer.hpp");

namespace trainyard {

/// A linear or convolutional layer as a product of matrices: each output is a sum, over the inputs of its group
/// and over the taps of the kernel, of a weight times a number of the layer's input.
struct ScoredLayer {
  std::string name;         ///< name of its node: "conv1"
  at::Tensor weight;        ///< [outputs, inputs of a group, taps], float; 0 is taken away already
  std::int64_t groups = 1;  ///< outputs lie group after group, and so do inputs
};

/// Holds what a layer saw in a pass over some samples of the set.
struct LayerPass {
  at::Tensor inputs;  ///< [samples, inputs of all groups, taps, positions]: what weights were multiplied with
  at::Tensor gradient;  ///< of the loss by the weight; those of all passes add up to that of the whole set
};

/// A scorer has no state of its own: one object scores all layers. All calls are of the loop thread.
class Scorer : public Plugin {
 public:
  static constexpr Kind kind{"scorer", 1};
  enum class Of : std::uint8_t { weights, filters, channels };
  struct Reads {
    bool inputs = false, gradients = false;
  };

  /// Returns what it gives a score each: weights, filters (the weights of an output) or input channels.
  virtual Of of() const = 0;
  /// Returns what `fold` reads of a pass; the rest is undefined. Where it reads nothing there are no passes.
  virtual Reads reads() const { return {}; }

  /// Returns what is to be kept of the passes up to this one: called for each pass over a layer, in order, with
  /// what it returned for the one before; undefined at first.
  virtual at::Tensor fold(const ScoredLayer&, const LayerPass&, const at::Tensor& before) const {
    return before;
  }
  /// Returns finite scores, of which larger ones matter more, comparable between layers: of weights in the shape of
  /// the weight, of filters [outputs], of channels [inputs of all groups]. `folded` is what `fold` returned for
  /// the last pass. Equal arguments have equal scores, to the bit.
  virtual at::Tensor scores(const ScoredLayer& layer, const at::Tensor& folded,
                            const RandomStream& random) const = 0;
};

}  // namespace trainyard
