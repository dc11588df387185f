// The inner loops of interval_gemm.cpp. interval_gemm_micro.cpp is compiled once for each instruction set.
#pragma once

#include "kernels/cpu/interval_gemm.hpp"

namespace trainyard::kernels {

/// `unit`: the relative error of an operation where the thread rounds up; 0 where nothing is proven.
using IntervalGemm = std::int64_t(std::int64_t rows, std::int64_t inner, std::int64_t columns,
                                  ConstIntervalRows a, const double* weights, double unit, IntervalRows out);
using IntervalDot = void(std::int64_t count, const double* weights, ConstIntervalRows a, const double* sizes,
                         IntervalSum& sum);
IntervalGemm interval_gemm_portable;
IntervalDot interval_dot_portable;
#if defined(__x86_64__)
IntervalGemm interval_gemm_avx2, interval_gemm_avx512;
IntervalDot interval_dot_avx2, interval_dot_avx512;
#endif

}  // namespace trainyard::kernels
