// The plugin under test, and trainings with it, each in a process of its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/check/small_run.hpp"
#include "core/engine/check/apart.hpp"
#include "core/plugins/registry.hpp"
#include "core/runfile/run_config.hpp"

namespace trainyard::check {

struct Subject {
  plugins::PluginFile file;
  plugins::Registry registry;  ///< has the file, and no other of its kind and name
  Materials materials;
  std::string folder;           ///< for the runs of one test
  std::uint64_t seed = 0;       ///< seed of the tests' random choices
  std::optional<SmallRun> run;  ///< a run that trains with the plugin
  double step_seconds = 0.0;    ///< seconds a step of that run, with evaluations and all around the steps

  /// Returns how many steps of that run fit into `seconds`: at least 1, at most `most`.
  std::int64_t steps_within(double seconds, std::int64_t most) const;
};

/// The arguments of one training.
struct Training {
  std::string text;
  std::vector<std::string> sets = {};
  std::string folder = {};   ///< the folder of a run that is resumed; empty: a fresh one
  std::int64_t kill_at = 0;  ///< as TrainOptions::kill_at
  /// After so many seconds SIGALRM ends the process; its memory is limited, too (24 GiB). 0: neither.
  unsigned seconds = 0;
  /// Seed of the memory layout: another number moves blocks and fills them otherwise. 0: as it comes.
  unsigned layout = 0;
};

/// How a training ended, and what it left.
struct Trained {
  int status = 0;  ///< as waitpid gives it
  std::string folder;
  std::string said;       ///< its standard output and error
  nlohmann::json result;  ///< result.json; null where it wrote none

  bool died_by(int signal) const;  ///< SIGALRM: Training::seconds were up
  int code() const;
};

/// Returns the run file with changes, as this process would train it. Throws ConfigError with the findings.
config::RunConfig valid(const Subject& subject, const std::string& text,
                        const std::vector<std::string>& sets);

/// Trains in this process; returns the exit code.
int train_here(const Subject& subject, const Training& training, const std::string& folder);
Trained train(const Subject& subject, const Training& training);
nlohmann::json result_of(const std::string& run_folder);
std::string fresh_folder(const Subject& subject);

/// The ends that pass: success alone, or errors in order as well (configuration, data, numbers, plugins).
enum class Allow : std::uint8_t { success, messages };
/// Returns what is wrong with how a training ended; nothing if it ended as it should.
std::optional<Outcome> bad_end(const Trained& trained, Allow allow = Allow::success);

}  // namespace trainyard::check
