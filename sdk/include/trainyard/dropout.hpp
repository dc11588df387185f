// dropout/1: masks for the dropout sites that a model announces.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include <ATen/core/Tensor.h>

#include <trainyard/plugin.hpp>
#include <trainyard/random.hpp>

namespace trainyard {

/// A place in a model where dropout may act.
struct DropoutSite {
  std::string id;          ///< the node's name, unique in the model: "fc1.dropout"
  std::int64_t axis = 1;   ///< the feature axis of the tensor there
  std::int64_t width = 0;  ///< its length
};

class Dropout : public Plugin {
 public:
  static constexpr Kind kind{"dropout", 1};

  /// The sites of the model, once it is built. `sites` outlives the plugin's use. Throws ConfigError for a
  /// site that it cannot serve.
  virtual void open(std::span<const DropoutSite> sites) = 0;

  /// The tensor with dropout applied at site number `site`; training only, under autograd. `random` is keyed
  /// by (seed, site, step, micro-batch): the same call draws the same mask again (recomputation, resume).
  virtual at::Tensor apply(const at::Tensor& x, std::size_t site, const RandomStream& random) = 0;
};

}  // namespace trainyard
