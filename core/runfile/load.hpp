// A run file as one tree: what it extends merged in, further files and --set on top, ${} filled in. What the
// keys mean is checked by resolve.hpp.
//
// Layers, later over earlier: extends (in order, depth first), the file, the next file of the command line,
// --set. Tables merge, arrays replace; lists of plugins ([[hooks]], [[metrics]], ...) merge by `id` (by
// `type` without one).
// ${vars.NAME}, ${run.name}, ${run.data} stand for scalars; "${vars.NAME}" alone keeps the type; "$${" is
// "${". A relative path (extends, run.data, plugins.paths, options of plugins that name files) starts at the
// folder of the file that it is written in, one from --set at the working directory.
#pragma once

#include <string>
#include <vector>

#include <trainyard/value.hpp>
#include "core/runfile/findings.hpp"

namespace trainyard::config {

/// What a run takes from outside its file.
struct Environment {
  std::string data_root;  ///< ${run.data} where the file has no run.data
  int ranks = 1;          ///< that train together
  int local_ranks = 1;    ///< of them, on this machine

  /// TRAINYARD_DATA, else `fallback`; the ranks of torchrun or --ranks.
  static Environment of_process(std::string fallback);
};

struct Document {
  Table root;                       ///< without `extends` and `vars`
  std::vector<std::string> layers;  ///< names of files (and "--set"), earliest first
  std::string file;                 ///< the last file of the command line
  bool readable = true;             ///< every file could be read; else nothing further can be said
  int ranks = 1;                    ///< that train together
  int local_ranks = 1;              ///< of them, on this machine
  bool trains = true;               ///< false: for a verb that evaluates or looks, in a single process
  std::string default_name;         ///< of the run: the first file's name without folder and extension
  Findings findings;                ///< syntax, extends, --set and ${} so far
};

/// `sets`: "a.b=v", v a TOML value or a bare word, array elements by index ("metrics.0.k=5"). `tool`, where it is
/// given: [[tools]] then has that one alone, "tools.0" in `sets`, with the options of its entry if there is one.
Document load(const std::vector<std::string>& files, const std::vector<std::string>& sets,
              const Environment& environment, const std::string& tool = {});

/// A resolved file with `sets` on top, as after --set.
Document with_sets(const Table& resolved, const std::vector<std::string>& sets);

/// The text of a resolved file, as toml_file() wrote it; `name` stands for it in findings.
Document load_resolved(const std::string& name, const std::string& text);

/// [plugins] paths, absolute: needed before there is a registry to resolve with.
std::vector<std::string> plugin_paths(const Document& document);

}  // namespace trainyard::config
