// How `trainyard train` was called.
#pragma once

#include <string>

namespace trainyard::train {

struct TrainOptions {
  std::string resolved_toml;  ///< what the run directory keeps
  bool overwrite = false;     ///< of a run directory that exists
  bool quiet = false;
  bool color = false;  ///< standard output is a terminal
};

}  // namespace trainyard::train
