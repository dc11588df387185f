#include "kernels/cpu/losses.hpp"

#include <stdexcept>

#include "kernels/cpu/losses_micro.hpp"

namespace trainyard::kernels {

const LossKernels& loss_kernels(Isa isa) {
  if (!supported(isa)) throw std::invalid_argument("losses: the processor has not these instructions");
#if defined(__x86_64__)
  if (isa == Isa::avx512) return losses_avx512;
  if (isa == Isa::avx2) return losses_avx2;
#endif
  return losses_portable;
}

}  // namespace trainyard::kernels
