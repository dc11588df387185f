// `trainyard train --ranks N`: starts the ranks of a run on this machine, each a child process with the
// environment that torchrun would give it. Torch-free.
#pragma once

#include <string>
#include <vector>

namespace trainyard::control {

/// Runs `words`, the program and its arguments, on each rank. Passes signals on, and ends the others when one
/// rank fails. Replaces a rank that SIGKILL ended if the run goes on without it. Returns the exit code of the
/// run: that of the rank that failed by itself, or 6 where one was killed. Throws Error.
int launch(const std::vector<std::string>& words, int ranks);

}  // namespace trainyard::control
