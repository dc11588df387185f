#include "core/programs/study/trial_config.hpp"

#include <algorithm>
#include <filesystem>

#include "core/runfile/print.hpp"
#include "core/runfile/resolve.hpp"
#include "lib/sha256.hpp"

namespace trainyard::cli {

std::vector<std::string> changes_of(const StudyTrial& trial) {
  std::vector<std::string> sets = trial.set;
  if (trial.until) sets.push_back("trainer.max_duration=" + trial.until->text());
  return sets;
}

std::string digest_of(const config::RunConfig& run) {
  Table training = run.resolved;
  training.erase("study");
  return lib::Sha256::of(config::toml_file(training));
}

TrialConfigs::TrialConfigs(std::vector<std::string> plugin_folders) : folders_(std::move(plugin_folders)) {}

const plugins::Registry& TrialConfigs::registry(std::vector<std::string> folders) {
  const auto known = registries_.find(folders);
  if (known != registries_.end()) return known->second;
  auto scanned = plugins::Registry::scan(plugin_folders(folders_, folders));
  return registries_.emplace(std::move(folders), std::move(scanned)).first->second;
}

config::RunConfig TrialConfigs::resolved(const StudyTrial& trial) {
  config::Document document =
      config::load({trial.run}, changes_of(trial), config::Environment::of_process("../shared/data"));
  const plugins::Registry& found = registry(config::plugin_paths(document));
  config::Resolution resolution = config::resolve(std::move(document), found);
  if (!resolution.config)
    throw ConfigError("trial \"" + trial.name + "\" is not a valid run:\n" + resolution.findings.text());
  return std::move(*resolution.config);
}

RunFileOptions TrialConfigs::training(const StudyTrial& trial, const std::string& folder) {
  RunFileOptions options{
      .files = {trial.run}, .sets = changes_of(trial), .plugin_folders = folders_, .tool = {}};
  if (resolved(trial).threads.intra_op == 0)
    options.sets.push_back("run.threads={ intra_op = 1, inter_op = 1 }");
  options.sets.push_back("run.output_dir=" + config::toml_text(Value(folder)));
  options.sets.push_back("run.resume=auto");
  return options;
}

}  // namespace trainyard::cli
