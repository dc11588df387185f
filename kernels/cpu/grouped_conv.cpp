#include "kernels/cpu/grouped_conv.hpp"

#include <stdexcept>

#include "kernels/cpu/grouped_conv_micro.hpp"

namespace trainyard::kernels {

const GroupedConvKernels& grouped_conv_kernels(Isa isa) {
  if (!supported(isa)) throw std::invalid_argument("grouped_conv: the processor has not these instructions");
#if defined(__x86_64__)
  if (isa == Isa::avx512) return grouped_conv_avx512;
  if (isa == Isa::avx2) return grouped_conv_avx2;
#endif
  return grouped_conv_portable;
}

}  // namespace trainyard::kernels
