// The inner loops of attention.cpp. attention_micro.cpp is compiled once for each instruction set, and each gives one
// of these tables.
#pragma once

#include "kernels/cpu/attention.hpp"

namespace trainyard::kernels {

extern const AttentionKernels attention_portable;
#if defined(__x86_64__)
extern const AttentionKernels attention_avx2, attention_avx512;
#endif

}  // namespace trainyard::kernels
