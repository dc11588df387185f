// Makes the run file of a trial as its training will read it. Torch-free.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <trainyard/study.hpp>

#include "core/cli/run_file.hpp"
#include "core/plugins/registry.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::cli {

/// Applies a trial's changes to its run file, as --set does: includes `until`, and one thread where the file
/// leaves the number to LibTorch, since trials run side by side.
class TrialConfigs {
 public:
  explicit TrialConfigs(std::vector<std::string> plugin_folders);

  /// Returns the trial's run. Throws ConfigError, with everything that is wrong, where it is not valid.
  config::RunConfig resolved(const StudyTrial& trial);

  /// Returns what trains it in that folder, from its newest checkpoint if it has one.
  RunFileOptions training(const StudyTrial& trial, const std::string& folder);

  /// Returns a digest of all that makes the trial what it is: trials with equal ones are the same training.
  std::string digest(const StudyTrial& trial);

 private:
  const plugins::Registry& registry(std::vector<std::string> folders);

  std::vector<std::string> folders_;  ///< folders of --plugins
  std::map<std::vector<std::string>, plugins::Registry> registries_;
};

/// Returns `set` and `until` of a trial as assignments.
std::vector<std::string> changes_of(const StudyTrial& trial);

}  // namespace trainyard::cli
