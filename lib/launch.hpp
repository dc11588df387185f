// Commands for other machines, by what the place has to start programs there: srun, ssh, kubectl. A launcher is a line of
// a shell with the text {command} in it.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace trainyard::lib {

/// Replaces each place of `old`, which is not empty.
inline std::string replaced(std::string text, const std::string& old, const std::string& by) {
  for (std::size_t at = 0; (at = text.find(old, at)) != std::string::npos; at += by.size())
    text.replace(at, old.size(), by);
  return text;
}

/// Returns a word as a shell reads it.
inline std::string shell_word(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

/// Returns words as a shell reads them, apart by blanks.
inline std::string shell_words(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + shell_word(word);
  return text;
}

/// Returns a script that runs the command in this process's folder with its TRAINYARD_DATA. A launcher that hands on the
/// environment would hand on whose child the command is.
inline std::string launch_script(const std::vector<std::string>& command) {
  std::string text =
      "unset TRAINYARD_SUPERVISOR\ncd " + shell_word(std::filesystem::current_path()) + " || exit 1\n";
  if (const char* const data = std::getenv("TRAINYARD_DATA"))
    text += "export TRAINYARD_DATA=" + shell_word(data) + "\n";
  return text + "exec " + shell_words(command) + "\n";
}

/// Returns the words that start a script by a launcher.
inline std::vector<std::string> launch_words(const std::string& launch, const std::string& script) {
  return {"/bin/sh", "-c", replaced(launch, "{command}", "sh " + shell_word(script))};
}

}  // namespace trainyard::lib
