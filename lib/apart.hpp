// A computation in a copy of this process: one that crashes, or goes on for ever, takes nothing along.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>

namespace trainyard::lib {

/// How a computation ended, and what it returned.
struct Apart {
  enum class End : std::uint8_t {
    returned,
    failed,   ///< it threw, or ended its process
    died,     ///< by a signal
    late,     ///< it was killed, as its time was up
    stopped,  ///< it was killed, as asked
    no_process
  };
  End end = End::no_process;
  std::string bytes;  ///< what it returned
  int number = 0;     ///< of the signal that it died by; errno of the process that was not to be had
};

/// Runs `compute` in a copy of this process, whose output goes nowhere. The copy has the calling thread alone, so that it must not wait
/// for others, and none of the files that are open; it ends with that thread. `stop`, where given, is asked every 10 ms.
Apart computed_apart(const std::function<std::string()>& compute,
                     double seconds = std::numeric_limits<double>::infinity(),
                     const std::function<bool()>& stop = {});

}  // namespace trainyard::lib
