// The loop of adam.cpp. adam_micro.cpp is compiled once for each instruction set.
#pragma once

#include "kernels/cpu/adam.hpp"

namespace trainyard::kernels {

void adam_portable(const AdamUpdate& what, const AdamNumbers& numbers, std::int64_t begin, std::int64_t end);
#if defined(__x86_64__)
void adam_avx2(const AdamUpdate& what, const AdamNumbers& numbers, std::int64_t begin, std::int64_t end);
void adam_avx512(const AdamUpdate& what, const AdamNumbers& numbers, std::int64_t begin, std::int64_t end);
#endif

}  // namespace trainyard::kernels
