// transform/1: hands on another network in place of the one that it is given, before anything trains it.
#pragma once

#include <memory>

#include <trainyard/contract.hpp>
#include <trainyard/model.hpp>
#include <trainyard/network.hpp>
#include <trainyard/plugin.hpp>

TRAINYARD_CONTRACT("transform.hpp");

namespace trainyard {

/// One entry of [[transforms]]. The entries work in the order of the run file, each on the network that the
/// one before it handed on, whenever the host builds a network: for a training, an evaluation, a tool, a swap
/// of the model or of a transform. Everything else, the dropout, the optimizer, the executor, checkpoints and
/// exports, sees the network of the last one alone.
///
/// A parameter that replaces another is named by it, `fc1.weight.gain`, so that a checkpoint tells what it is
/// part of. A transform that reads the graph says `m.needs("graph")`.
class Transform : public Plugin {
 public:
  static constexpr Kind kind{"transform", 1};

  /// Returns the network to go on with, on the CPU, in float; the same one where nothing is to be done. It is
  /// called once for each network, and gives equal results for equal ones; any thread, several at once.
  /// Throws ConfigError where it cannot do its work on this network, and names the node or the parameter.
  virtual std::unique_ptr<Network> apply(std::unique_ptr<Network> network,
                                         const ModelContext& context) const = 0;
};

}  // namespace trainyard
