// Run files around a plugin, by its kind: what a test of the registry trains. No plugin under test is named
// here; one that needs other data or options than the first try gives is matched by trying.
#pragma once

#include <string>
#include <vector>

#include "core/plugins/registry.hpp"

namespace trainyard::contract {

/// Data, and a model and a loss for it, made of shipped plugins.
struct Surroundings {
  std::string name;
  std::string data;    ///< below [data]
  std::string model;   ///< below [model]
  std::string loss;    ///< below [loss]
  std::string widths;  ///< from the data's features to the model's outputs: "[16, 8, 10]"
};

const std::vector<Surroundings>& hosts();

/// A plugin in its slot of a host's run, with the options that it needs.
struct HostRun {
  const Surroundings* host = nullptr;
  plugins::PluginFile plugin;
  std::string options;  ///< as lines of TOML

  std::string text() const;
};

/// Of the shipped plugins, those that train on one rank; tests/contract/ranks.cpp has the others, too.
const std::vector<plugins::PluginFile>& alone();
bool needs_ranks(const plugins::PluginFile& plugin);

/// The first run that trains with this plugin, on two ranks where it needs them. Fails the test, with every
/// reason, where none does.
const HostRun& host_run(const plugins::PluginFile& plugin);

/// Where the run file has an option of the plugin: "optimizer.lr" for --set, and as messages write it.
std::string set_path(const plugins::PluginFile& plugin, const std::string& option);
std::string message_path(const plugins::PluginFile& plugin, const std::string& option);

/// Texts of values that an option might need, most likely first.
std::vector<std::string> candidates(const OptionSpec& option, const Surroundings& host);

/// "optimizer sgd".
std::string title(const plugins::PluginFile& plugin);

/// Digests of a run's result.json and what else must not change from run to run.
struct Outcome {
  int exit_code = -1;
  std::string model, optimizer, error;
  std::int64_t steps = 0;
  std::int64_t swaps = 0;  ///< in the journal
  double loss = 0.0;       ///< of validation
};

/// What a run left in its folder.
Outcome outcome_of(const std::string& run_folder);

/// Trains in a fresh folder, as `trainyard train` does.
Outcome train_shortly(const std::string& text, const std::vector<std::string>& sets,
                      const plugins::Registry& registry);

}  // namespace trainyard::contract
