// The inner loops of codes of 8 bits. byte_codes_micro.cpp is compiled once for each instruction set, and each gives
// one of these tables.
#pragma once

#include "kernels/cpu/byte_codes.hpp"

namespace trainyard::kernels {

extern const ByteCodeKernels byte_codes_portable;
#if defined(__x86_64__)
extern const ByteCodeKernels byte_codes_avx2, byte_codes_avx512;
#endif

}  // namespace trainyard::kernels
