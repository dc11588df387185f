// Networks that can compute in double precision, for runs with trainer.precision = "fp64".
#pragma once

#include <trainyard/contract.hpp>

TRAINYARD_CONTRACT("doubles.hpp");

namespace trainyard {

/// The host finds this interface of a network by dynamic_cast; such a run refuses a network that lacks it.
class ComputesInDoubles {
 public:
  virtual ~ComputesInDoubles() = default;

  /// Converts parameters, buffers and constants of floating point to float64; each keeps its handle and
  /// value. So are inputs of floating point that passes are given from now on, and the output. Called once,
  /// on the CPU, before anything else: nobody has dropout or a tap in the network, or a twin of it.
  virtual void to_doubles() = 0;
};

}  // namespace trainyard
