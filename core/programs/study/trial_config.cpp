#include "core/programs/study/trial_config.hpp"

#include <algorithm>
#include <filesystem>

#include "core/rundir/folder.hpp"
#include "core/runfile/print.hpp"
#include "core/runfile/resolve.hpp"
#include "lib/sha256.hpp"
#include "lib/words.hpp"

namespace trainyard::cli {

std::vector<std::string> changes_of(const StudyTrial& trial) {
  std::vector<std::string> sets = trial.set;
  if (trial.until) sets.push_back("trainer.max_duration=" + trial.until->text());
  return sets;
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
  const bool begins = !trial.start.empty() && checkpoint::list(folder + "/checkpoints").empty();
  options.sets.push_back("run.resume=" + (begins ? config::toml_text(Value(trial.start)) : "auto"));
  if (begins) options.sets.emplace_back("run.load=weights");
  return options;
}

std::string TrialConfigs::digest(const StudyTrial& trial) {
  Table training = resolved(trial).resolved;
  training.erase("study");
  std::string all = config::toml_file(training);
  if (trial.before.empty() && trial.start.empty()) return lib::Sha256::of(all);
  for (const std::vector<std::string>& words : trial.before) all += "\n" + lib::join(words, " ");
  return lib::Sha256::of(all + "\n" + trial.start);
}

}  // namespace trainyard::cli
