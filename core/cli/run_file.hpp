// The first steps of every verb that takes a run file: reads it, finds the plugins, checks and reports.
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
  int ranks = 0;       ///< number of ranks that the run is for; 0: as the environment says
  bool json = false;   ///< findings as JSON
  std::string tool;    ///< the tool that the run file is read for; empty: none
  bool trains = true;  ///< config::Document::trains
};

struct RunFile {
  plugins::Registry registry;
  config::RunConfig config;
  config::Findings findings;  ///< warnings
};

/// Returns the folders that are searched for plugins: those given, then [plugins] paths, TRAINYARD_PLUGINS
/// (colon-separated), and the shipped ones. Throws ConfigError where a given one, or one of
/// TRAINYARD_PLUGINS, does not exist; [plugins] paths are checked with the run file.
std::vector<std::string> plugin_folders(const std::vector<std::string>& given,
                                        const std::vector<std::string>& of_run = {});

/// Reads a run file; nothing where it is not valid: then the report has been printed to standard error, or as
/// JSON to standard output.
std::optional<RunFile> read_run_file(RunFileOptions options);

}  // namespace trainyard::cli
