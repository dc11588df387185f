// Run files around a plugin, by its kind: what a check of it trains. No plugin under test is named here; one that
// needs other data or options than the first try gives is matched by trying. Torch-free.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/plugins/registry.hpp"

namespace trainyard::check {

/// Data, and a model and a loss for it, made of shipped plugins.
struct Surroundings {
  std::string name;
  std::string data;    ///< below [data]
  std::string model;   ///< below [model]
  std::string loss;    ///< below [loss]
  std::string widths;  ///< from the data's features to the model's outputs: "[16, 8, 10]"
};
const std::vector<Surroundings>& surroundings();

/// What options can be filled with.
struct Materials {
  const plugins::Registry* registry = nullptr;  ///< plugins that others are made of
  std::vector<std::string> files;               ///< of each format, write_samples()
  std::vector<std::string> sets = {};  ///< KEY=VALUE, on top of the run file, which fills in nothing then
};

/// A plugin in its slot of a run, with the options that it needs. Two epochs of three steps.
struct SmallRun {
  const Surroundings* host = nullptr;
  plugins::PluginFile plugin;
  std::string options;  ///< as lines of TOML

  std::string text() const;
  std::string without_plugin() const;  ///< what is around it, alone
};

/// Texts of values that an option might need, most likely first.
std::vector<std::string> candidates(const OptionSpec& option, const Surroundings& host,
                                    const Materials& materials);

/// Why a run does not train; empty where it does.
using Refusal = std::function<std::string(const SmallRun&)>;

/// The first run that trains with this plugin. Where there is none, `reasons` has a line for each that was tried.
std::optional<SmallRun> find_run(const plugins::PluginFile& plugin, const Materials& materials,
                                 const Refusal& refusal, std::string& reasons);

/// Where --set gives it a file that it must have and nobody gave: "data.path"; empty where there is none.
std::string missing_file(const plugins::PluginFile& plugin, const Materials& materials);

/// Whether it works on several ranks alone.
bool needs_ranks(const plugins::PluginFile& plugin);

/// Where the run file has an option of the plugin, for --set: "optimizer.lr".
std::string set_path(const plugins::PluginFile& plugin, const std::string& option);

/// "optimizer sgd".
std::string title(const plugins::PluginFile& plugin);

}  // namespace trainyard::check
