#include "kernels/cpu/cells.hpp"

#include <stdexcept>

#include "kernels/cpu/cells_micro.hpp"

namespace trainyard::kernels {

const CellKernels& cell_kernels(Isa isa) {
  if (!supported(isa)) throw std::invalid_argument("cells: the processor has not these instructions");
#if defined(__x86_64__)
  if (isa == Isa::avx512) return cells_avx512;
  if (isa == Isa::avx2) return cells_avx2;
#endif
  return cells_portable;
}

}  // namespace trainyard::kernels
