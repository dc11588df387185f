// The exchanges that are under way on a rank's devices. Only the device waits for them: if a rank is gone,
// the kernels of the others wait for it, and so does the host where it reads from the device.
#pragma once

#include <vector>

#include <c10/util/intrusive_ptr.h>

#include "core/engine/distributed/lookout.hpp"

namespace c10d {
class Work;
}

namespace trainyard::distributed {

class UnderWay {
 public:
  using Work = c10::intrusive_ptr<c10d::Work>;

  UnderWay();
  ~UnderWay();

  void add(Work work);
  /// Blocks the host until all are complete; called before it reads their results. Throws DistributedError.
  void settle(Lookout& others);
  /// Ends what the device is at, which may otherwise go on for ever.
  void abort() noexcept;

 private:
  std::vector<Work> works_;  ///< in the order in which they were begun
};

}  // namespace trainyard::distributed
