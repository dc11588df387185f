// What ranks exchange on their devices at the moment. Nobody waits for it there but the device itself: a rank
// that is gone leaves the others' kernels waiting, and with them whatever the host reads from the device.
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
  /// The host waits until all of it is done: ahead of reading what came of it. Throws DistributedError.
  void settle(Lookout& others);
  /// Ends what the device is at: it may go on for ever.
  void abort() noexcept;

 private:
  std::vector<Work> works_;  ///< in the order in which they were begun
};

}  // namespace trainyard::distributed
