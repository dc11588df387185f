// The inner loops of adam.cpp. adam_micro.cpp is compiled once for each instruction set, and each gives one
// of these tables.
#pragma once

#include "kernels/cpu/adam.hpp"

namespace trainyard::kernels {

extern const AdamKernels adam_portable;
#if defined(__x86_64__)
extern const AdamKernels adam_avx2, adam_avx512;
#endif

}  // namespace trainyard::kernels
