#include "core/programs/study/launcher.hpp"

#include <cstdlib>
#include <filesystem>

#include "core/rundir/run_directory.hpp"

namespace trainyard::cli {
namespace {

/// As one word of a shell.
std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

}  // namespace

std::vector<std::string> launched(const std::string& launch, const std::vector<std::string>& command,
                                  const std::string& script) {
  // A launcher that hands on the environment would hand on whose child the trial is.
  std::string text =
      "unset TRAINYARD_SUPERVISOR\ncd " + quoted(std::filesystem::current_path()) + " || exit 1\n";
  if (const char* const data = std::getenv("TRAINYARD_DATA"))
    text += "export TRAINYARD_DATA=" + quoted(data) + "\n";
  text += "exec";
  for (const std::string& word : command) text += " " + quoted(word);
  const std::string path = std::filesystem::absolute(script);
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  report::write_atomically(path, text + "\n");
  std::string line = launch;
  for (std::size_t at; (at = line.find("{command}")) != std::string::npos;)
    line.replace(at, std::string("{command}").size(), "sh " + quoted(path));
  return {"/bin/sh", "-c", line};
}

}  // namespace trainyard::cli
