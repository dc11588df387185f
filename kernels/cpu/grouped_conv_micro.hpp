// The inner loops of grouped_conv.cpp. grouped_conv_micro.cpp is compiled once for each instruction set, and each gives one
// of these tables.
#pragma once

#include "kernels/cpu/grouped_conv.hpp"

namespace trainyard::kernels {

extern const GroupedConvKernels grouped_conv_portable;
#if defined(__x86_64__)
extern const GroupedConvKernels grouped_conv_avx2, grouped_conv_avx512;
#endif

}  // namespace trainyard::kernels
