#include "kernels/cpu/attention.hpp"

#include <stdexcept>

#include "kernels/cpu/attention_micro.hpp"

namespace trainyard::kernels {

const AttentionKernels& attention_kernels(Isa isa) {
  if (!supported(isa)) throw std::invalid_argument("attention: the processor has not these instructions");
#if defined(__x86_64__)
  if (isa == Isa::avx512) return attention_avx512;
  if (isa == Isa::avx2) return attention_avx2;
#endif
  return attention_portable;
}

}  // namespace trainyard::kernels
