// The inner loops of interval_gemm.cpp. interval_gemm_micro.cpp is compiled once for each instruction set.
#pragma once

#include "kernels/cpu/interval_gemm.hpp"

namespace trainyard::kernels {

using IntervalGemm = std::int64_t(std::int64_t rows, std::int64_t inner, std::int64_t columns,
                                  ConstIntervalRows a, const double* weights, IntervalRows out);
IntervalGemm interval_gemm_portable;
#if defined(__x86_64__)
IntervalGemm interval_gemm_avx2, interval_gemm_avx512;
#endif

}  // namespace trainyard::kernels
