// The table of each instruction set that max_pool_micro.cpp is compiled for.
#pragma once

#include "kernels/cpu/max_pool.hpp"

namespace trainyard::kernels {

extern const MaxPoolKernels max_pool_portable;
#if defined(__x86_64__)
extern const MaxPoolKernels max_pool_avx2, max_pool_avx512;
#endif

}  // namespace trainyard::kernels
