// The inner loops of cells.cpp. cells_micro.cpp is compiled once for each instruction set, and each gives one of these
// tables.
#pragma once

#include "kernels/cpu/cells.hpp"

namespace trainyard::kernels {

extern const CellKernels cells_portable;
#if defined(__x86_64__)
extern const CellKernels cells_avx2, cells_avx512;
#endif

}  // namespace trainyard::kernels
