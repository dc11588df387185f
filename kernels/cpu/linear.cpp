#include "kernels/cpu/linear.hpp"

#include <stdexcept>

#include "kernels/cpu/linear_micro.hpp"

namespace trainyard::kernels {

const LinearKernels& linear_kernels(Isa isa) {
  if (!supported(isa)) throw std::invalid_argument("linear: the processor has not these instructions");
#if defined(__x86_64__)
  if (isa == Isa::avx512) return linear_avx512;
  if (isa == Isa::avx2) return linear_avx2;
#endif
  return linear_portable;
}

}  // namespace trainyard::kernels
