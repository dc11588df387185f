// How `trainyard train` was called.
#pragma once

#include <cstdint>
#include <string>

namespace trainyard::train {

struct TrainOptions {
  std::string resolved_toml;  ///< what the run directory keeps
  bool overwrite = false;     ///< of a run directory that exists
  bool quiet = false;
  bool color = false;  ///< standard output is a terminal
  /// The process ends by SIGKILL at the safe point of this step, as checks of plugins want it; 0: it does not.
  std::int64_t kill_at = 0;
};

}  // namespace trainyard::train
