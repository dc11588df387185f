#include "kernels/cpu/adam.hpp"

#include <stdexcept>

#include "kernels/cpu/adam_micro.hpp"

namespace trainyard::kernels {

AdamKernel adam_kernel(Isa isa) {
  if (!supported(isa)) throw std::invalid_argument("adam: the processor has not these instructions");
#if defined(__x86_64__)
  if (isa == Isa::avx512) return adam_avx512;
  if (isa == Isa::avx2) return adam_avx2;
#endif
  return adam_portable;
}

}  // namespace trainyard::kernels
