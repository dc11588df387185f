// Names the instruction sets for which inner loops are compiled.
#pragma once

namespace trainyard::kernels {

enum class Isa { portable, avx2, avx512 };

/// Returns whether this processor has it. AVX-512 means F, VL, DQ and BW; AVX2 comes with FMA.
bool supported(Isa isa);

Isa fastest_isa();

}  // namespace trainyard::kernels
