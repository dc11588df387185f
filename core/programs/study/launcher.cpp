#include "core/programs/study/launcher.hpp"

#include <filesystem>

#include "core/rundir/run_directory.hpp"
#include "lib/launch.hpp"

namespace trainyard::cli {

std::vector<std::string> launched(const std::string& launch, const std::vector<std::string>& command,
                                  const std::string& script) {
  const std::string path = std::filesystem::absolute(script);
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  report::write_atomically(path, lib::launch_script(command));
  return lib::launch_words(launch, path);
}

}  // namespace trainyard::cli
