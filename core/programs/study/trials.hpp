// Runs trials as child processes and collects their outcomes. They are copies of this process, which has loaded the
// engine once: a training of its own would take a quarter of a second for that.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <trainyard/study.hpp>

#include "core/cli/child.hpp"
#include "core/cli/run_file.hpp"

namespace trainyard::cli {

struct EndedTrial {
  TrialOutcome outcome;
  int code = 0;              ///< exit code
  bool interrupted = false;  ///< it ended on request and can be resumed
  bool lost = false;         ///< its launcher failed, or the machine that it was on: no outcome of its own
};

/// Returns a metric's values by step, as a run's metrics.jsonl has them.
std::map<double, double> curve_of(const std::string& run, const std::string& metric);

/// The running trials; the destructor ends them and waits for them.
class Trials {
 public:
  /// `study`: whose metric has its curves taken from the runs, and which may have a launcher.
  Trials(const control::HeldSignals& signals, const StudyOptions& study) : signals_(signals), study_(study) {}
  ~Trials();
  Trials(const Trials&) = delete;
  Trials& operator=(const Trials&) = delete;

  /// Starts a trial. `folder` is its run's; `log` the file for its output, removed at its end if empty.
  void start(const StudyTrial& trial, const RunFileOptions& training, const std::string& folder,
             const std::string& log);

  /// Returns the trials that ended since the last call.
  std::vector<EndedTrial> ended();

  /// Asks all trials to end at their next step, with a checkpoint.
  void interrupt();

  int running() const { return static_cast<int>(running_.size()); }

 private:
  struct Running {
    pid_t process = 0;
    StudyTrial trial;
    std::string folder, log;
    std::chrono::steady_clock::time_point begun;
  };

  pid_t process(const StudyTrial& trial, const RunFileOptions& training, const std::string& log) const;
  EndedTrial look_at(const Running& trial, int status) const;

  const control::HeldSignals& signals_;
  const StudyOptions& study_;
  std::vector<Running> running_;
  bool interrupted_ = false;
};

}  // namespace trainyard::cli
