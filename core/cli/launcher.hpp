// `trainyard train --ranks N`: starts the ranks of a run on this machine, each a child process, with the
// environment that torchrun would give them. Torch-free.
#pragma once

#include <string>
#include <vector>

namespace trainyard::control {

/// `words`: program and arguments of each. Hands signals on, and ends the others when one rank fails. A rank
/// that is killed by SIGKILL, and whose run goes on without it, is started anew. Returns the exit code of the
/// run: of the rank that failed by itself, 6 where one was killed. Throws Error.
int launch(const std::vector<std::string>& words, int ranks);

}  // namespace trainyard::control
