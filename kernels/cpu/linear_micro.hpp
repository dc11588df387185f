// The table of each instruction set that linear_micro.cpp is compiled for.
#pragma once

#include "kernels/cpu/linear.hpp"

namespace trainyard::kernels {

extern const LinearKernels linear_portable;
#if defined(__x86_64__)
extern const LinearKernels linear_avx2, linear_avx512;
#endif

}  // namespace trainyard::kernels
