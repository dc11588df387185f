// The run file of a trial, as its training will read it. Torch-free.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <trainyard/study.hpp>

#include "core/plugins/registry.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::cli {

/// What a trial changes of its run file, as after --set: with `until`, and with one thread where the file leaves
/// their number to LibTorch, since trials run side by side.
class TrialConfigs {
 public:
  explicit TrialConfigs(std::vector<std::string> plugin_folders);

  /// Throws ConfigError, with all that is wrong, where it is not a valid run.
  config::RunConfig resolved(const StudyTrial& trial);

  /// The words of the command that trains it in that folder, from its newest checkpoint on if it has one.
  std::vector<std::string> command(const StudyTrial& trial, const std::string& folder);

 private:
  const plugins::Registry& registry(std::vector<std::string> folders);

  std::vector<std::string> folders_;  ///< of --plugins
  std::string executable_;            ///< by its path, where one that is built or installed meanwhile will be
  std::map<std::vector<std::string>, plugins::Registry> registries_;
};

/// `set` and `until` of a trial.
std::vector<std::string> changes_of(const StudyTrial& trial);

/// Of a resolved run file: two trials of the same one are the same training.
std::string digest_of(const config::RunConfig& run);

}  // namespace trainyard::cli
