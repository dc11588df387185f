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
  std::string folder;           ///< for runs; its own
  std::uint64_t seed = 0;       ///< of what is random in the tests
  std::optional<SmallRun> run;  ///< that trains with it
  double step_seconds = 0.0;    ///< of that run, evaluations and all that is around it included

  /// Steps that are over in so many seconds; at most `most`.
  std::int64_t steps_within(double seconds, std::int64_t most) const;
};

/// How a run is trained.
struct Training {
  std::string text;
  std::vector<std::string> sets = {};
  std::string folder = {};   ///< of a run that goes on; empty: a fresh one
  std::int64_t kill_at = 0;  ///< as TrainOptions
  /// After which it ends by SIGALRM, as it ends by an error beyond some GB of memory; 0: neither.
  unsigned seconds = 0;
  /// Of the memory: from another number, blocks are at other places and filled otherwise.
  unsigned layout = 0;
};

/// How it ended, and what it left.
struct Trained {
  int status = 0;  ///< as waitpid gives it
  std::string folder;
  std::string said;       ///< on standard output and error
  nlohmann::json result;  ///< result.json; null where it wrote none

  bool died_by(int signal) const;  ///< SIGALRM: Training::seconds were up
  int code() const;
};

/// The run file with changes, as this process would train it. Throws ConfigError with the findings.
config::RunConfig valid(const Subject& subject, const std::string& text,
                        const std::vector<std::string>& sets);

/// In this process; exit code.
int train_here(const Subject& subject, const Training& training, const std::string& folder);
Trained train(const Subject& subject, const Training& training);
nlohmann::json result_of(const std::string& run_folder);
std::string fresh_folder(const Subject& subject);

/// Whether errors with which a run may end in order count as well: of configuration, data, numbers and plugins.
enum class Allow : std::uint8_t { success, messages };
/// What is wrong with how a training ended; nothing where it ended as it should.
std::optional<Outcome> bad_end(const Trained& trained, Allow allow = Allow::success);

}  // namespace trainyard::check
