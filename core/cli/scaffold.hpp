// A folder for a plugin of one's own, from the templates that are installed: sdk/templates.
#pragma once

#include <string>
#include <vector>

#include "core/plugins/registry.hpp"

namespace trainyard::cli {

inline const std::vector<std::string> licences = {"apache-2.0", "mit", "bsd-3-clause", "none"};

struct Scaffold {
  std::string kind, name;
  std::string directory = ".";  ///< that the folder is made in
  std::string licence = "apache-2.0";
  std::string author;  ///< empty: "the authors of NAME"
};

/// Where the templates of this installation are: a folder a kind, and `common` and `licences`.
std::string templates_folder();

/// Why a plugin cannot be called that, with the mend; empty: it can. `shipped`: those that there are.
std::string refused_name(const std::string& kind, const std::string& name, const plugins::Registry& shipped);

/// Makes the folder and gives its path. Throws ConfigError where the name will not do or the folder is there, and
/// DataError where it cannot be written; nothing is left then.
std::string scaffold(const Scaffold& what, const plugins::Registry& shipped);

/// The command that run.toml of a folder made so begins with.
std::string first_command(const std::string& folder);

/// `trainyard` where that is this program, by the PATH; else its path.
std::string own_command();

}  // namespace trainyard::cli
