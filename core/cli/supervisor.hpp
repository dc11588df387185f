// `trainyard train --supervise`: runs the training as a child process. If a plugin brings it down, it starts
// it again from its last checkpoint, without that plugin. Torch-free.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace trainyard::control {

struct Supervised {
  std::string directory;           ///< the run's directory
  std::vector<std::string> first;  ///< program and arguments of the first start
  std::vector<std::string> again;  ///< those after a crash, which resume from the last checkpoint
  int most_restarts = 5;
  std::chrono::milliseconds pause{1000};  ///< before the first restart; doubles for each further one
};

/// Returns the exit code of the training that ended by itself, or the reason for no further start. Passes on
/// signals that end a run. A crash that no plugin is blamed for leads to a restart only if there is a newer
/// checkpoint than at the crash before. Throws Error.
int supervise(const Supervised& supervised);

}  // namespace trainyard::control
