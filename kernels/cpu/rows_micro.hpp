// The inner loops of rows.cpp. rows_micro.cpp is compiled once for each instruction set, and each gives one
// of these tables.
#pragma once

#include "kernels/cpu/rows.hpp"

namespace trainyard::kernels {

extern const RowKernels rows_portable;
#if defined(__x86_64__)
extern const RowKernels rows_avx2, rows_avx512;
#endif

}  // namespace trainyard::kernels
