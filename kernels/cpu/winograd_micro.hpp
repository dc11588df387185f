// The inner loops of winograd.cpp. winograd_micro.cpp is compiled once for each instruction set, and each gives one
// of these tables.
#pragma once

#include "kernels/cpu/winograd.hpp"

namespace trainyard::kernels {

extern const WinogradKernels winograd_portable;
#if defined(__x86_64__)
extern const WinogradKernels winograd_avx2, winograd_avx512;
#endif

}  // namespace trainyard::kernels
