// `trainyard train --supervise`: runs the training as a child process, and starts it again from its last
// checkpoint where a plugin brings it down, without that plugin. Torch-free.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace trainyard::control {

struct Supervised {
  std::string directory;           ///< of the run
  std::vector<std::string> first;  ///< program and arguments of the first start
  std::vector<std::string> again;  ///< of those after a crash: goes on from the last checkpoint
  int most_restarts = 5;
  std::chrono::milliseconds pause{1000};  ///< before the first restart; twice as long before each further one
};

/// Returns the exit code of the training that ended by itself, or why no further one was started. Signals
/// that end a run are handed on. A crash that no plugin is blamed for is a reason to start again only where
/// there is a newer checkpoint than at the crash before. Throws Error.
int supervise(const Supervised& supervised);

}  // namespace trainyard::control
