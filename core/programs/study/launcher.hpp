// Starts trials on other machines, by what the place has for it: srun, ssh, kubectl. Torch-free.
#pragma once

#include <string>
#include <vector>

namespace trainyard::cli {

/// Returns the words that start a command by a launcher (`launch` of [study]), whose {command} it takes for a script; that
/// is written to `script`: it goes to this process's folder, with its TRAINYARD_DATA, and runs the command.
std::vector<std::string> launched(const std::string& launch, const std::vector<std::string>& command,
                                  const std::string& script);

}  // namespace trainyard::cli
