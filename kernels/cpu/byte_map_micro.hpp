// The inner loops of byte_map.cpp. byte_map_micro.cpp is compiled once for each instruction set, and each gives one
// of these tables.
#pragma once

#include "kernels/cpu/byte_map.hpp"

namespace trainyard::kernels {

extern const ByteMapKernels byte_map_portable;
#if defined(__x86_64__)
extern const ByteMapKernels byte_map_avx2, byte_map_avx512;
#endif

}  // namespace trainyard::kernels
