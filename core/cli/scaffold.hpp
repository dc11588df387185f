// Makes a folder for a user's plugin from the installed templates: sdk/templates.
#pragma once

#include <string>
#include <vector>

#include "core/plugins/registry.hpp"

namespace trainyard::cli {

inline const std::vector<std::string> licences = {"apache-2.0", "mit", "bsd-3-clause", "none"};

struct Scaffold {
  std::string kind, name;
  std::string directory = ".";  ///< in which the folder is made
  std::string licence = "apache-2.0";
  std::string author;  ///< empty: "the authors of NAME"
};

/// Returns the folder of this installation's templates: one folder per kind, and `common` and `licences`.
std::string templates_folder();

/// Returns why a name is refused, and the remedy; empty if it is not. `shipped`: the existing plugins.
std::string refused_name(const std::string& kind, const std::string& name, const plugins::Registry& shipped);

/// Makes the folder and returns its path. Throws ConfigError where the name is refused or the folder exists,
/// and DataError where it cannot be written; then nothing is left behind.
std::string scaffold(const Scaffold& what, const plugins::Registry& shipped);

/// Returns the command with which run.toml of a folder made so begins.
std::string first_command(const std::string& folder);

/// Returns `trainyard` if the PATH finds this program under that name; else its path.
std::string own_command();

}  // namespace trainyard::cli
