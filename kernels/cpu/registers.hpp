// Defines the register size of the instruction set for which a unit is compiled.
#pragma once

namespace trainyard::kernels {

#if defined(__AVX512F__)
constexpr int register_bytes = 64;
#elif defined(__AVX2__)
constexpr int register_bytes = 32;
#else
constexpr int register_bytes = 16;
#endif

}  // namespace trainyard::kernels
