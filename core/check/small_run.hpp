// Makes the run files with which a plugin is checked, by its kind. No plugin under test is named here; if one
// needs other data or options than the first try gives, others are tried. Torch-free.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/plugins/registry.hpp"

namespace trainyard::check {

/// Data with a model and a loss that fit, all of shipped plugins.
struct Surroundings {
  std::string name;
  std::string data;            ///< lines below [data]
  std::string model;           ///< lines below [model]
  std::string loss;            ///< lines below [loss]
  std::string widths;          ///< from the data's features to the model's outputs: "[16, 8, 10]"
  std::string executor = {};   ///< lines below [executor]; empty: the run has no such table
  std::string transform = {};  ///< lines below [[transforms]]; likewise
};
const std::vector<Surroundings>& surroundings();

/// Values with which options can be filled.
struct Materials {
  const plugins::Registry* registry = nullptr;  ///< plugins that can be parts of others
  std::vector<std::string> files;               ///< one of each format, write_samples()
  std::vector<std::string> sets = {};  ///< KEY=VALUE applied to the run file, which is then left unfilled
};

/// A run of two epochs of three steps with a plugin in its slot and the options that it needs.
struct SmallRun {
  const Surroundings* host = nullptr;
  plugins::PluginFile plugin;
  std::string options;  ///< lines of TOML

  std::string text() const;
  std::string without_plugin() const;  ///< the surroundings alone
};

/// Returns texts of values that an option might need, most likely first.
std::vector<std::string> candidates(const OptionSpec& option, const Surroundings& host,
                                    const Materials& materials);

/// Returns why a run does not train; empty where it does.
using Refusal = std::function<std::string(const SmallRun&)>;

/// Returns the first run that trains with this plugin. If none does, `reasons` has a line for each one tried.
std::optional<SmallRun> find_run(const plugins::PluginFile& plugin, const Materials& materials,
                                 const Refusal& refusal, std::string& reasons);

/// Returns the option, "data.path", through which --set must give a required file; empty if none is missing.
std::string missing_file(const plugins::PluginFile& plugin, const Materials& materials);

/// Returns whether the plugin works only with several ranks.
bool needs_ranks(const plugins::PluginFile& plugin);

/// Returns the path of an option of the plugin for --set: "optimizer.lr".
std::string set_path(const plugins::PluginFile& plugin, const std::string& option);

/// Returns kind and name: "optimizer sgd".
std::string title(const plugins::PluginFile& plugin);

}  // namespace trainyard::check
