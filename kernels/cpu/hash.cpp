#include "kernels/cpu/hash.hpp"

#include <stdexcept>

#include "kernels/cpu/hash_micro.hpp"

namespace trainyard::kernels {

const HashKernels& hash_kernels(Isa isa) {
  if (!supported(isa)) throw std::invalid_argument("hash: the processor has not these instructions");
#if defined(__x86_64__)
  if (isa == Isa::avx512) return hash_avx512;
  if (isa == Isa::avx2) return hash_avx2;
#endif
  return hash_portable;
}

}  // namespace trainyard::kernels
