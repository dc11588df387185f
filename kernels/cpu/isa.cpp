#include "kernels/cpu/isa.hpp"

#include <initializer_list>

namespace trainyard::kernels {

bool supported(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::avx512)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  if (isa == Isa::avx2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
  return isa == Isa::portable;
}

Isa fastest_isa() {
  for (const Isa isa : {Isa::avx512, Isa::avx2})
    if (supported(isa)) return isa;
  return Isa::portable;
}

}  // namespace trainyard::kernels
