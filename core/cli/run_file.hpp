// What every verb that takes a run file does first: read it, find the plugins, check everything, report.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/plugins/registry.hpp"
#include "core/runfile/load.hpp"
#include "core/runfile/resolve.hpp"

namespace trainyard::cli {

struct RunFileOptions {
  std::vector<std::string> files;  ///< the first may be a run: its directory, or its name below runs/
  std::vector<std::string> sets;
  std::vector<std::string> plugin_folders;
  int ranks = 0;       ///< that the run is for; 0: as the environment says
  bool json = false;   ///< findings as JSON
  std::string tool;    ///< the one that the run file is read for
  bool trains = true;  ///< config::Document::trains
};

struct RunFile {
  plugins::Registry registry;
  config::RunConfig config;
  config::Findings findings;  ///< warnings
};

/// Folders that plugins are looked for in: those given, then [plugins] paths, TRAINYARD_PLUGINS
/// (colon-separated), and the shipped ones. Throws ConfigError where one that is given, or of
/// TRAINYARD_PLUGINS, is not there; of [plugins] paths the check of the run file tells.
std::vector<std::string> plugin_folders(const std::vector<std::string>& given,
                                        const std::vector<std::string>& of_run = {});

/// Nothing where the file is not valid; the report has been printed then, to standard error, or as JSON to
/// standard output.
std::optional<RunFile> read_run_file(RunFileOptions options);

}  // namespace trainyard::cli
