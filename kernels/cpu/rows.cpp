#include "kernels/cpu/rows.hpp"

#include <stdexcept>

#include "kernels/cpu/rows_micro.hpp"

namespace trainyard::kernels {

const RowKernels& row_kernels(Isa isa) {
  if (!supported(isa)) throw std::invalid_argument("rows: the processor has not these instructions");
#if defined(__x86_64__)
  if (isa == Isa::avx512) return rows_avx512;
  if (isa == Isa::avx2) return rows_avx2;
#endif
  return rows_portable;
}

}  // namespace trainyard::kernels
