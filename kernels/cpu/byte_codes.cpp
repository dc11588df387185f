#include "kernels/cpu/byte_codes.hpp"

#include <stdexcept>

#include "kernels/cpu/byte_codes_micro.hpp"

namespace trainyard::kernels {

const ByteCodeKernels& byte_code_kernels(Isa isa) {
  if (!supported(isa)) throw std::invalid_argument("byte codes: the processor has not these instructions");
#if defined(__x86_64__)
  if (isa == Isa::avx512) return byte_codes_avx512;
  if (isa == Isa::avx2) return byte_codes_avx2;
#endif
  return byte_codes_portable;
}

}  // namespace trainyard::kernels
