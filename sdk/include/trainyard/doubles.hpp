// Networks that compute in double precision where a run is to: trainer.precision = "fp64".
#pragma once

#include <trainyard/contract.hpp>

TRAINYARD_CONTRACT("doubles.hpp");

namespace trainyard {

/// Of a network, by dynamic_cast; one that is none of these is refused in such a run.
class ComputesInDoubles {
 public:
  virtual ~ComputesInDoubles() = default;

  /// Parameters, buffers and constants of floating point become float64, each within the handle that it has, and
  /// with its value; so are the inputs of floating point that passes are given from now on, and the output. Called
  /// once, on the CPU, before anything else: nobody has dropout or a tap in the network, or a twin of it.
  virtual void to_doubles() = 0;
};

}  // namespace trainyard
