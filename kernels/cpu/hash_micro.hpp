// The inner loops of hashing. hash_micro.cpp is compiled once for each instruction set, and each gives one of
// these tables.
#pragma once

#include "kernels/cpu/hash.hpp"

namespace trainyard::kernels {

extern const HashKernels hash_portable;
#if defined(__x86_64__)
extern const HashKernels hash_avx2, hash_avx512;
#endif

}  // namespace trainyard::kernels
