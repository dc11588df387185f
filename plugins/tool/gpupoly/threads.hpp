// Work shared out among threads that round as a bound asks for.
#pragma once

#include <cstddef>

#include "kernels/cpu/interval_gemm.hpp"

namespace gpupoly {

/// f(i) for i below `count`, shared out among threads that round as asked for. Each i is one thread's alone.
/// `work`: operations of all of them, about; few are not worth waiting for other threads, which on busy cores may
/// take long.
template <class F>
void in_threads(bool upward, std::size_t count, std::size_t work, const F& f) {
#pragma omp parallel if (work > 100'000)
  {
    const trainyard::kernels::Upward rounding(upward);
#pragma omp for schedule(dynamic, 1)
    for (std::size_t i = 0; i < count; ++i) f(i);
  }
}

}  // namespace gpupoly
