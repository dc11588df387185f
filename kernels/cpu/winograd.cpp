#include "kernels/cpu/winograd.hpp"

#include <stdexcept>

#include "kernels/cpu/winograd_micro.hpp"

namespace trainyard::kernels {

const WinogradKernels& winograd_kernels(Isa isa) {
  if (!supported(isa)) throw std::invalid_argument("winograd: the processor has not these instructions");
#if defined(__x86_64__)
  if (isa == Isa::avx512) return winograd_avx512;
  if (isa == Isa::avx2) return winograd_avx2;
#endif
  return winograd_portable;
}

}  // namespace trainyard::kernels
