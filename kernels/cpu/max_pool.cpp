#include "kernels/cpu/max_pool.hpp"

#include <stdexcept>

#include "kernels/cpu/max_pool_micro.hpp"

namespace trainyard::kernels {

const MaxPoolKernels& max_pool_kernels(Isa isa) {
  if (!supported(isa)) throw std::invalid_argument("max_pool: the processor has not these instructions");
#if defined(__x86_64__)
  if (isa == Isa::avx512) return max_pool_avx512;
  if (isa == Isa::avx2) return max_pool_avx2;
#endif
  return max_pool_portable;
}

}  // namespace trainyard::kernels
