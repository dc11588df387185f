// Provides threads for kernels whose caller divides the work: those of OpenMP in units that are compiled with
// it, one in others.
#pragma once

#ifdef __SANITIZE_THREAD__
#include <thread>
#include <vector>
#elif defined(_OPENMP)
#include <omp.h>
#endif

namespace trainyard::kernels {

/// Calls part(i, n) for i = 0 .. n - 1, on n threads at most as many as `threads`, and returns when all are
/// done. A part must not throw.
template <class Part>
void in_parts(int threads, const Part& part) {
#ifdef __SANITIZE_THREAD__  // which does not see how OpenMP's threads wait for each other
  std::vector<std::thread> started;
  const int count = threads > 1 ? threads : 1;
  for (int i = 0; i < count; ++i) started.emplace_back([&, i] { part(i, count); });
  for (std::thread& each : started) each.join();
#else
#ifdef _OPENMP
  if (threads > 1) {
#pragma omp parallel num_threads(threads)
    part(omp_get_thread_num(), omp_get_num_threads());
    return;
  }
#endif
  static_cast<void>(threads);
  part(0, 1);
#endif
}

}  // namespace trainyard::kernels
