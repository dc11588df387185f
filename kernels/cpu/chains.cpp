#include "kernels/cpu/chains.hpp"

#include <stdexcept>

#include "kernels/cpu/chains_micro.hpp"

namespace trainyard::kernels {

ChainKernel chain_kernel(Isa isa) {
  if (!supported(isa)) throw std::invalid_argument("chains: the processor has not these instructions");
#if defined(__x86_64__)
  if (isa == Isa::avx512) return chain_avx512;
  if (isa == Isa::avx2) return chain_avx2;
#endif
  return chain_portable;
}

}  // namespace trainyard::kernels
