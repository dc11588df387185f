// The door between the front and the engine library, which alone links LibTorch. Torch-free: the front
// includes it, loads libtrainyard_engine.so when a verb needs it, and calls through the one struct that it
// exports.
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

/// What the schedule says of a step.
struct StepRate {
  std::int64_t step = 0;  ///< from 1
  double lr = 0.0;        ///< of the optimizer's base learning rate
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
  /// Steps, batch arithmetic and memory of a run, printed.
  int (*plan)(const config::RunConfig&, const plugins::Registry&) = nullptr;
  /// Whether the parts of a run fit each other: builds what `plan` does, and prints nothing but what is wrong.
  int (*check)(const config::RunConfig&, const plugins::Registry&) = nullptr;
  /// What the schedule of a run says at `most` steps at most, evenly spread; the first and the last are among
  /// them. Planned swaps are not followed.
  int (*rates)(const config::RunConfig&, const plugins::Registry&, std::int64_t most,
               std::vector<StepRate>&) = nullptr;
  /// Layers, shapes, parameters, multiply-adds and dropout sites, printed.
  int (*model_show)(const config::RunConfig&, const plugins::Registry&) = nullptr;
  /// The rules of the run file over what was recorded in a folder, printed as text or JSON.
  int (*check_rules)(const config::RunConfig&, const plugins::Registry&, const std::string& trial,
                     bool json) = nullptr;
  /// The tool of the run file, its only one, over weights (a file or a checkpoint; empty: the newest of the run's
  /// directory); its report printed as text or JSON.
  int (*tool)(const config::RunConfig&, const plugins::Registry&, const std::string& weights,
              bool json) = nullptr;
  /// Checks the plugins in these files, each test in a process of its own, and prints what was found.
  int (*check_plugins)(const std::vector<std::string>& files, const plugins::Registry&,
                       const check::CheckOptions&) = nullptr;
  /// LibTorch, threads, devices, printed.
  int (*doctor)() = nullptr;
};

}  // namespace trainyard::train

extern "C" const trainyard::train::Engine* trainyard_engine();
