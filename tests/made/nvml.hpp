// What the made NVIDIA management library tells of GPUs that are not there.
#pragma once

namespace trainyard::test {

struct MadeGpus {
  int init = 0;  ///< what nvmlInit_v2 returns; 0: success
  unsigned count = 0;
  unsigned use[2] = {};  ///< percent
  unsigned long long total = 1000, used[2] = {};
  unsigned long long growth = 0;  ///< of `used`, whenever it is asked for
  int opened = 0;                 ///< times that it was initialised and not shut down
};

}  // namespace trainyard::test
