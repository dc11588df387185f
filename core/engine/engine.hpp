// The interface between the front and the engine library, which alone links LibTorch. This header does not
// need LibTorch: the front includes it, loads libtrainyard_engine.so when a verb needs it, and calls through
// the one struct that the library exports.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "core/check/check_options.hpp"
#include "core/engine/verbs/commands.hpp"
#include "core/plugins/registry.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::train {

/// The rates that the schedule sets for a step.
struct StepRate {
  std::int64_t step = 0;  ///< counted from 1
  double lr = 0.0;        ///< the optimizer's base learning rate times the schedule's factor
  std::optional<double> momentum;
};

struct Engine {
  static constexpr std::uint64_t expected_magic = 0x33656e69676e65;  // "engine3"
  std::uint64_t magic = expected_magic;

  // Each returns an exit code; errors have been printed to standard error by then.
  int (*train)(const config::RunConfig&, const plugins::Registry&, const TrainOptions&) = nullptr;
  /// Evaluates weights (a file, a checkpoint, "best") on the splits; prints text, or JSON.
  int (*evaluate)(const config::RunConfig&, const plugins::Registry&, const std::string& weights,
                  bool json) = nullptr;
  /// Prints the steps, batch arithmetic and memory of a run.
  int (*plan)(const config::RunConfig&, const plugins::Registry&) = nullptr;
  /// Checks that the parts of a run fit each other: builds what `plan` builds, and prints only what is wrong.
  int (*check)(const config::RunConfig&, const plugins::Registry&) = nullptr;
  /// Gives what the schedule sets at no more than `most` steps, evenly spread, the first and the last among
  /// them. Planned swaps are not followed.
  int (*rates)(const config::RunConfig&, const plugins::Registry&, std::int64_t most,
               std::vector<StepRate>&) = nullptr;
  /// Prints layers, shapes, parameters, multiply-adds and dropout sites.
  int (*model_show)(const config::RunConfig&, const plugins::Registry&) = nullptr;
  /// Checks the rules of the run file against the records in a folder; prints text or JSON.
  int (*check_rules)(const config::RunConfig&, const plugins::Registry&, const std::string& trial,
                     bool json) = nullptr;
  /// Runs the tool of the run file, its only one, on weights (a file or a checkpoint; empty: the newest of
  /// the run's directory), and prints its report as text or JSON.
  int (*tool)(const config::RunConfig&, const plugins::Registry&, const std::string& weights,
              bool json) = nullptr;
  /// Checks plugins, each test in a process of its own, and prints what was found; no name: all of a file.
  int (*check_plugins)(const std::vector<plugins::PluginFile>&, const plugins::Registry&,
                       const check::CheckOptions&) = nullptr;
  /// Prints LibTorch's version, the threads and the devices.
  int (*doctor)() = nullptr;
};

}  // namespace trainyard::train

extern "C" const trainyard::train::Engine* trainyard_engine();
