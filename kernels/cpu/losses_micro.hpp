// The inner loops of losses.cpp. losses_micro.cpp is compiled once for each instruction set, and each gives
// one of these tables.
#pragma once

#include "kernels/cpu/losses.hpp"

namespace trainyard::kernels {

extern const LossKernels losses_portable;
#if defined(__x86_64__)
extern const LossKernels losses_avx2, losses_avx512;
#endif

}  // namespace trainyard::kernels
