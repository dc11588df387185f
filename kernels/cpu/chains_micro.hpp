// The inner loop of chains.cpp. chains_micro.cpp is compiled once for each instruction set, and each gives one of
// these functions.
#pragma once

#include "kernels/cpu/chains.hpp"

namespace trainyard::kernels {

void chain_portable(const Chain& chain, std::int64_t begin, std::int64_t end);
#if defined(__x86_64__)
void chain_avx2(const Chain& chain, std::int64_t begin, std::int64_t end);
void chain_avx512(const Chain& chain, std::int64_t begin, std::int64_t end);
#endif

}  // namespace trainyard::kernels
