// Loads a run file as one tree: merges what it extends, further files and --set, and fills in ${}. The
// meaning of the keys is checked by resolve.hpp.
#pragma once

#include <string>
#include <vector>

#include <trainyard/value.hpp>
#include "core/runfile/findings.hpp"

namespace trainyard::config {

/// Settings that a run takes from outside its file.
struct Environment {
  std::string data_root;  ///< value of ${run.data} if the file has no run.data
  int ranks = 1;          ///< number of ranks that train together
  int local_ranks = 1;    ///< number of them on this machine

  /// Reads TRAINYARD_DATA, else takes `fallback`, and the ranks of torchrun or --ranks.
  static Environment of_process(std::string fallback);
};

struct Document {
  Table root;                       ///< the tree without `extends` and `vars`
  std::vector<std::string> layers;  ///< names of files (and "--set"), earliest first
  std::string file;                 ///< the last file of the command line
  bool readable = true;             ///< every file could be read; otherwise no further checks make sense
  int ranks = 1;                    ///< number of ranks that train together
  int local_ranks = 1;              ///< number of them on this machine
  bool trains = true;               ///< false: for a verb that evaluates or inspects, in a single process
  std::string default_name;         ///< default run.name: name of the first file without folder and extension
  Findings findings;                ///< about syntax, extends, --set and ${} so far
};

/// Loads files. `sets`: "a.b=v", v a TOML value or a bare word, array elements by index ("metrics.0.k=5").
/// With `tool`, [[tools]] keeps only that entry, made if absent, which `sets` call "tools.0".
Document load(const std::vector<std::string>& files, const std::vector<std::string>& sets,
              const Environment& environment, const std::string& tool = {});

/// Returns a resolved file with `sets` applied, as after --set.
Document with_sets(const Table& resolved, const std::vector<std::string>& sets);

/// Loads the text of a resolved file, as toml_file() wrote it; `name` stands for it in findings.
Document load_resolved(const std::string& name, const std::string& text);

/// Returns [plugins] paths as absolute ones, which are needed before there is a registry to resolve with.
std::vector<std::string> plugin_paths(const Document& document);

}  // namespace trainyard::config
