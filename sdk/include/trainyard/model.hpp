// model/1: builds the network of a run.
#pragma once

#include <memory>

#include <trainyard/batch.hpp>
#include <trainyard/contract.hpp>
#include <trainyard/network.hpp>
#include <trainyard/plugin.hpp>

TRAINYARD_CONTRACT("model.hpp");

namespace trainyard {

struct ModelContext {
  const BatchSchema& schema;
  std::uint64_t seed;  ///< the run's; draw initial values from RandomStream(seed, "model/PARAMETER")
};

class Model : public Plugin {
 public:
  static constexpr Kind kind{"model", 1};

  /// Builds a network on the CPU, in float; called for each that the host needs, on any thread. Throws
  /// ConfigError where its options do not fit the data, and names both values.
  virtual std::unique_ptr<Network> build(const ModelContext& context) const = 0;
};

}  // namespace trainyard
