// Trials as child processes, and what came of each. Torch-free.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <trainyard/study.hpp>

#include "core/cli/child.hpp"

namespace trainyard::cli {

struct EndedTrial {
  TrialOutcome outcome;
  double seconds = 0.0;
  int code = 0;              ///< as of a process
  bool interrupted = false;  ///< it was asked to end, and can go on
};

/// Ends those that still run, and waits for them, when it goes.
class Trials {
 public:
  explicit Trials(const control::HeldSignals& signals) : signals_(signals) {}
  ~Trials();
  Trials(const Trials&) = delete;
  Trials& operator=(const Trials&) = delete;

  /// `folder`: of its run. `log`: a file for what it prints, which goes where that is nothing.
  void start(const StudyTrial& trial, const std::vector<std::string>& words, const std::string& folder,
             const std::string& log);

  /// Those that have ended since.
  std::vector<EndedTrial> ended();

  /// Asks all to end at their next step, with a checkpoint.
  void interrupt();

  int running() const { return static_cast<int>(running_.size()); }

 private:
  struct Running {
    pid_t process = 0;
    StudyTrial trial;
    std::string folder, log;
    std::chrono::steady_clock::time_point begun;
  };

  EndedTrial look_at(const Running& trial, int status) const;

  const control::HeldSignals& signals_;
  std::vector<Running> running_;
  bool interrupted_ = false;
};

}  // namespace trainyard::cli
