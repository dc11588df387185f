// The instruction sets that a test of a kernel goes through.
#pragma once

#include <vector>

#include "kernels/cpu/isa.hpp"

namespace trainyard::kernels {

/// Those that this processor has.
inline std::vector<Isa> isas() {
  std::vector<Isa> found;
  for (const Isa isa : {Isa::portable, Isa::avx2, Isa::avx512})
    if (supported(isa)) found.push_back(isa);
  return found;
}

}  // namespace trainyard::kernels
