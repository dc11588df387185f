// dropout/1: decides what is dropped at the places that a model announces. Most plugins mask activations at
// sites (`apply`); others mask weights, keep recurrent states, or take over linear layers in order to skip
// the work of what is dropped. The network calls a plugin only at the places that it was opened with, and not
// at all while its probability is 0.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include <trainyard/contract.hpp>
#include <trainyard/duration.hpp>
#include <trainyard/forward_context.hpp>
#include <trainyard/plugin.hpp>
#include <trainyard/random.hpp>

TRAINYARD_CONTRACT("dropout.hpp");

namespace trainyard {

/// A place in a model where activations may be dropped.
struct DropoutSite {
  std::string id;          ///< the node's name, unique in the model: "fc1.dropout"
  std::int64_t rank = 2;   ///< number of dimensions of the tensor there
  std::int64_t axis = 1;   ///< index of its feature axis
  std::int64_t width = 0;  ///< length of that axis
  std::int64_t rows = 1;   ///< rows of the first axis a sample: tokens, where they are folded into it
  bool by_name = false;    ///< acts only where the run names it (DropoutPlan): attention weights
  bool head = false;       ///< all that comes after it depends on the batch through this site alone
  bool active = true;      ///< the run's [model.dropout] selects it
};

/// A matrix or kernel of a linear, convolutional or recurrent layer.
struct DropoutWeight {
  std::string id;  ///< the parameter's name: "fc1.weight", "lstm1.weight_hh"
  std::vector<std::int64_t> shape;
  bool linear = false;  ///< weight of a layer y = x W^T + b
  bool active = true;
};

/// A linear layer y = x W^T + b next to active sites.
struct DropoutLinear {
  std::string id;  ///< the node's name: "fc2"
  std::int64_t in = 0, out = 0;
  std::optional<std::size_t> input_site;  ///< site whose output is x, with no other node between
  std::optional<std::size_t>
      output_site;  ///< site that y goes to, through a ReLU where `relu`, and to nothing else
  bool relu = false;
};

/// A recurrent layer whose states go from one time step to the next.
struct DropoutCell {
  std::string id;  ///< the node's name: "lstm1"
  std::int64_t hidden = 0;
  bool active = true;
};

struct DropoutPlaces {
  std::vector<DropoutSite> sites;
  std::vector<DropoutWeight> weights;
  std::vector<DropoutLinear> linears;
  std::vector<DropoutCell> cells;
};

/// The arguments of a call at a place. The same call draws the same numbers again (recomputation, resume).
struct DropoutCall {
  double p = 0.0;       ///< probability of this step, above 0
  RandomStream random;  ///< keyed by (seed, place, step, micro-batch, sample or batch of an evaluation)
  ForwardContext pass;
};

/// Options that every dropout plugin has.
struct DropoutCommon {
  double p = 0.5;
  std::vector<std::string> sites;
  std::string when = "always";
  std::string ramp = "constant";
  Duration cutoff{50.0, Duration::Unit::percent};

  static void describe(Fields<DropoutCommon>& m);
};

// Further interfaces: some dropouts do these besides, or in place of, masking activations. A plugin derives
// from those that it implements, and returns itself from the method of that name: `class Zoneout final :
// public Dropout, public CarriesStates`. Tensors are under autograd; calls come on the thread of the pass.

/// Masks weights, in training and in samples.
class MasksWeights {
 public:
  /// Returns the tensor that a pass takes in place of weight number `index`. It must have the same shape;
  /// LSTM and autocast ask for no more.
  virtual at::Tensor mask_weight(const at::Tensor& weight, std::size_t index, const DropoutCall& call) = 0;

 protected:
  ~MasksWeights() = default;
};

/// Computes, in evaluations, linear layers whose weights are masked (DropoutWeight::linear). Without this
/// interface evaluations take these weights as they are.
class EvaluatesLinears {
 public:
  /// The activation behind the layer: works element by element, on any tensor of the output's shape, and may
  /// be called often; empty where none follows directly.
  using Activation = std::function<at::Tensor(const at::Tensor&)>;
  /// Returns what stands for activation(x W^T + b): its mean over the masks, say. W is weight number `index`.
  virtual at::Tensor evaluate_linear(const at::Tensor& x, const at::Tensor& weight,
                                     const std::optional<at::Tensor>& bias, const Activation& activation,
                                     std::size_t index, const DropoutCall& call) = 0;

 protected:
  ~EvaluatesLinears() = default;
};

/// Takes over linear layers, in training and in samples.
class FusesLinears {
 public:
  /// Returns whether it takes over linear layer number `linear`.
  virtual bool fuses(std::size_t linear) const = 0;
  /// Returns the layer's output, after ReLU and dropout where the layer has an output site: y = mask_out *
  /// relu(x W^T + b) / keep; x comes from the input site, so that what was dropped there is zero.
  virtual at::Tensor masked_linear(const at::Tensor& x, const at::Tensor& weight,
                                   const std::optional<at::Tensor>& bias, std::size_t linear,
                                   const DropoutCall& call) = 0;

 protected:
  ~FusesLinears() = default;
};

/// Mixes the states of recurrent cells, in evaluations too (DropoutCall::pass).
class CarriesStates {
 public:
  /// Returns the state of a cell after time step `time`, from the state before and the one that the cell has
  /// computed, each [batch, hidden]. `memory`: the state is the LSTM's cell state, else the layer's output.
  virtual at::Tensor carry(const at::Tensor& before, const at::Tensor& now, std::size_t cell, bool memory,
                           std::int64_t time, const DropoutCall& call) = 0;

 protected:
  ~CarriesStates() = default;
};

class Dropout : public Plugin {
 public:
  static constexpr Kind kind{"dropout", 1};
  using Common = DropoutCommon;

  /// Called with the places of the model once it is built; their indices in these lists number them from then
  /// on. Inactive places get no call. Throws ConfigError for an active one that it cannot serve.
  virtual void open(const DropoutPlaces& places) = 0;

  /// Returns the tensor with dropout applied at site number `site`; under autograd. At a head it may have k
  /// times the rows: then the network's output has, and the plugin adapts the targets (before_loss). Only a
  /// plugin that masks weights or carries states, and so has no sites, leaves this out.
  virtual at::Tensor apply(const at::Tensor& x, std::size_t site, const DropoutCall& call);

  /// Each returns this object if it implements the interface, else null; the same at every call.
  virtual MasksWeights* masks_weights() { return nullptr; }
  virtual EvaluatesLinears* evaluates_linears() { return nullptr; }
  virtual FusesLinears* fuses_linears() { return nullptr; }
  virtual CarriesStates* carries_states() { return nullptr; }

  Common common;
};

/// Resolves the options that every dropout has, for a run: the places where it acts, and the probability at a
/// step. The host computes both, once, and hands them to the plugin in `open` and in each call.
class DropoutPlan {
 public:
  /// Opens the dropout, which must outlive the plan, for the places of a network. Places that `common.sites`
  /// does not select are made inactive; linear layers lose inactive sites. A pattern selects the places that
  /// it fits; those that act by name only where it fits no others, so that "h.*" does not, and
  /// "*.attn_weights" does. Throws ConfigError where a pattern fits nothing, and for a cutoff or ramp that
  /// cannot be resolved in a run of this length.
  DropoutPlan(Dropout& dropout, DropoutPlaces places, const RunScale& scale);

  Dropout& dropout() const { return *dropout_; }
  const DropoutPlaces& places() const { return places_; }
  /// Returns the probability at a step, which counts from 0. Early and late: Liu et al., "Dropout reduces
  /// underfitting", ICML 2023, section 4; end points are reached.
  double rate(std::int64_t step) const;

 private:
  Dropout* dropout_;
  DropoutCommon common_;
  DropoutPlaces places_;
  std::int64_t cutoff_ = 0, total_ = 0;  ///< steps
};

}  // namespace trainyard
