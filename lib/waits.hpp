// Tells whether other programs had the cores while something was timed. A thread that could run and had no core has waited, and the
// scheduler counts for how long; a thread that sleeps or waits for another one's work does not.
#pragma once

#include <functional>
#include <string>

namespace trainyard::lib {

/// Returns the seconds that threads have waited for a core so far, summed over `tasks`, a folder for each thread of a process; 0
/// where the kernel does not count them.
double seconds_waited(const std::string& tasks = "/proc/self/task");

struct Disturbance {
  int attempts = 0;      ///< how often it was measured
  double share = 0.0;    ///< seconds that threads waited in the last attempt, over the seconds that it took
  bool is_quiet = true;  ///< the last attempt counts
};

/// Calls `measure`, and calls it again where threads waited for a notable share of the time that it took, a few times at most.
Disturbance measure_undisturbed(const std::function<void()>& measure, const std::function<double()>& waited);

}  // namespace trainyard::lib
